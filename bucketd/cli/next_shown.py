"""What `bucketd next` shows: a table with notes for people, one object for programs, and errors that point at their token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bucketd.cli.output import clean, note, say, short, table

if TYPE_CHECKING:
    from bucketd.timing import CronError, Spec
    from bucketd.timing.peers import Comparison

_EPOCH = datetime(1970, 1, 1)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FIELDS = ("minute", "hour", "dom", "month", "dow")


@dataclass(frozen=True, slots=True)
class Asked:
    """A spec, and the fires to show. `expr` and `seed` are those of a cron; instants in UTC epoch seconds."""

    spec: Spec
    phase: int
    expr: str | None
    tz: str
    seed: str | None
    after_s: int
    now: datetime
    fires: list[int]
    warnings: tuple[str, ...]


def show(asked: Asked, *, words: bool, compare: bool) -> None:
    """Prints words, table and comparison; warnings go to stderr."""
    for warning in asked.warnings:
        note(f"warning: {clean(warning)}", "yellow")
    if words:
        for line in _words(asked):
            say(line)
    found = list(_lines(asked))
    columns = ["UTC", asked.tz, "day", ">in"] + (["note"] if any(line["note"] for line in found) else [])
    rows = [
        ("-", "-", "-", "-", line["note"])
        if not line["fires"]
        else (line["at"], line["local"], line["weekday"], short(line["in_s"]), line["note"])
        for line in found
    ]
    table(columns, [row[: len(columns)] for row in rows], empty="no occurrence left")
    if compare:
        _show_comparison(asked)


def document(asked: Asked, *, words: bool, compare: bool) -> dict[str, Any]:
    """The same as one object."""
    found = list(_lines(asked))
    kind = {"expr": asked.expr} if asked.expr is not None else {"kind": asked.spec.kind}
    policies = {key: getattr(asked.spec, key) for key in ("gap", "fold") if hasattr(asked.spec, key)}
    shown: dict[str, Any] = kind | {"tz": asked.tz} | policies
    shown["after"] = instant(asked.after_s)
    shown["fires"] = [{key: value for key, value in line.items() if key != "fires"} for line in found if line["fires"]]
    shown["skipped"] = [{"at": line["at"], "note": line["note"]} for line in found if not line["fires"]]
    shown["warnings"] = list(asked.warnings)
    if words:
        shown["words"] = _words(asked)
    if compare:
        shown["compare"] = [_comparison(found) for found in _compared(asked)]
    return shown


def pointed(error: CronError, expr: str) -> str:
    """The message with its code, and the text with carets under what is wrong, as far as that has a place."""
    head = f"{error.code}: {error}" + ("; give one with --seed" if error.code == "hash_seed_missing" else "")
    place = _place(error, expr)
    if place is None:
        return head
    start, length = place
    text = expr.replace("\t", " ")
    return f"{head}\n  {text}\n  {' ' * start}{'^' * max(length, 1)}"


def instant(at_s: int) -> str:
    """`2026-03-08T07:00:00Z`."""
    return (_EPOCH + timedelta(seconds=at_s)).isoformat() + "Z"


def _place(error: CronError, expr: str) -> tuple[int, int] | None:
    """Where the token stands in the text as typed: (start, length); a bad list may have an empty token."""
    if error.token is None or error.field == "tz":
        return None
    text = expr.lower()
    if error.field is None:
        start = text.find(error.token.lower())
        return None if start < 0 else (start, len(error.token))
    fields = list(re.finditer(r"[^ \t]+", text))
    if len(fields) != len(_FIELDS):
        return None
    field = fields[_FIELDS.index(error.field)]
    at = field.start()
    for item in field.group().split(","):
        if item == error.token:
            return at, len(item)
        at += len(item) + 1
    return None


def _lines(asked: Asked) -> Iterator[dict[str, Any]]:
    from bucketd.timing.notes import annotated
    from bucketd.timing.offsets import offsets_of

    offsets, now_s = offsets_of(asked.tz), asked.now.timestamp()
    for line in annotated(asked.spec, asked.after_s, asked.fires):
        local, weekday = _wall(line.at_s, offsets.at(line.at_s).offset_s)
        yield {
            "at": instant(line.at_s),
            "local": local,
            "weekday": weekday,
            "in_s": round(line.at_s - now_s, 3),
            "note": line.note,
            "fires": line.fires,
        }


def _wall(at_s: int, offset_s: int) -> tuple[str, str]:
    """The wall clock with its offset, and the weekday; dashes where it would leave the calendar."""
    try:
        wall = _EPOCH + timedelta(seconds=at_s + offset_s)
    except OverflowError:
        return "-", "-"
    minutes, seconds = divmod(abs(offset_s), 60)
    offset = f"{'-' if offset_s < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" + (
        f":{seconds:02}" if seconds else ""
    )
    return wall.isoformat(" ") + offset, _WEEKDAYS[wall.weekday()]


def _words(asked: Asked) -> list[str]:
    from bucketd.timing import CronSpec
    from bucketd.timing.words import policy_words, words

    said = [words(asked.spec, asked.phase)]
    if isinstance(asked.spec, CronSpec) and asked.spec.tz != "UTC":
        said[0] += f" ({asked.spec.tz})"
        said.append(policy_words(asked.spec))
    return said


def _compared(asked: Asked) -> list[Comparison]:
    from bucketd.store.errors import InvalidInput
    from bucketd.timing import CronSpec
    from bucketd.timing.peers import compare

    if asked.expr is None or not isinstance(asked.spec, CronSpec):
        raise InvalidInput("expected a cron expression with --compare: others have no such intervals, got none")
    return compare(asked.expr, asked.spec, asked.seed, asked.after_s)


def _show_comparison(asked: Asked) -> None:
    rows = []
    for found in _compared(asked):
        if not found.differences:
            rows.append((found.peer, found.summary, "", "", "", ""))
        for position, found_one in enumerate(found.differences):
            local, _ = _wall(found_one.at_s, found_one.offset_s)
            first = (found.peer, found.summary) if not position else ("", "")
            rows.append((*first, local, str(found_one.ours), str(found_one.theirs), found_one.why))
    table(
        ("scheduler", "within two years", asked.tz, ">runs here", ">runs there", "why"),
        rows,
        empty="nothing to compare",
    )


def _comparison(found: Comparison) -> dict[str, Any]:
    differences = [
        {"at": instant(one.at_s), "ours": one.ours, "theirs": one.theirs, "why": one.why} for one in found.differences
    ]
    return {
        "peer": found.peer,
        "basis": found.basis,
        "verdict": found.verdict,
        "summary": found.summary,
        "differences": differences,
    }
