"""Cron text to `CronSpec`: five fields or a macro, checked once, here.

The dialect is cronie's with L, W, # and Jenkins' H; Sunday is 0 or 7. An expression that this module accepts can fire.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from bucketd.timing.days import DayRule, calendar_of
from bucketd.timing.errors import CronError, TimingError
from bucketd.timing.expand import is_wide_step, values_of
from bucketd.timing.fields import (
    DOM,
    DOW,
    FIELDS,
    Field,
    Item,
    check_bounds,
    check_ranges,
    check_step,
    read_field,
    shown,
)
from bucketd.timing.spec import FOLDS, GAPS, CronSpec
from bucketd.timing.zones import zone

LONGEST_EXPRESSION = 256

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FORBIDDEN = re.compile(r"[^\t\x20-\x7e]")


def parse_cron(
    expr: str, tz: str = "UTC", *, gap: str = "auto", fold: str = "auto", seed: str | None = None
) -> tuple[CronSpec, tuple[str, ...]]:
    """The spec that `expr` means in zone `tz`, and warnings for its author: valid, but it may not mean what it seems.

    `gap` is auto, run_after, skip or shift; `fold` is auto, first, second or both; auto depends on whether every hour
    matches. `seed` is what H is drawn from: the schedule's id as canonical text. Raises `CronError`, or `TimingError`
    with code ``bad_policy``.
    """
    _check_policy("gap", gap, GAPS)
    _check_policy("fold", fold, FOLDS)
    if not isinstance(expr, str) or not isinstance(tz, str):
        return _read(expr, tz, gap, fold, seed)  # for its errors: the cache might not take such a key
    # Without an H the seed changes nothing: one cache entry for all schedules.
    return _parse(expr, tz, gap, fold, seed if "h" in expr.lower() else None)


def _read(expr: str, tz: str, gap: str, fold: str, seed: str | None) -> tuple[CronSpec, tuple[str, ...]]:
    fields = fields_of(expr)
    items = [read_field(field, text) for field, text in zip(FIELDS, fields, strict=True)]
    for check in (check_ranges, check_step, check_bounds):
        for field, members in zip(FIELDS, items, strict=True):
            for item in members:
                check(field, item)
    _check_seed(items, seed)
    zone(tz)
    minute, hour, dom, month, dow = (
        values_of(field, members, seed) for field, members in zip(FIELDS, items, strict=True)
    )
    days = _day_rule(month, dom, dow, items[2], items[4], both=_is_star(fields[2]) or _is_star(fields[4]))
    if calendar_of(days).is_empty():
        raise CronError("never_fires", f"expected an expression that some date matches, got {shown(expr)}: none does")
    every_hour = len(hour) == 24
    if gap == "auto":
        gap = "skip" if every_hour else "run_after"
    if fold == "auto":
        fold = "both" if every_hour else "first"
    return CronSpec(minute, hour, days, tz, gap, fold), tuple(_warnings(fields, items))


# Millions of schedules share thousands of expressions. Errors are not kept.
_parse = lru_cache(maxsize=16_384)(_read)


def fields_of(expr: str) -> list[str]:
    """The five fields in lower case, macros resolved."""
    if not isinstance(expr, str) or not expr.strip(" \t"):
        raise CronError("empty", f"expected five fields or a macro such as @daily, got {shown(str(expr))}")
    if len(expr) > LONGEST_EXPRESSION:
        raise CronError("too_long", f"expected at most {LONGEST_EXPRESSION} characters, got {len(expr)}")
    forbidden = _FORBIDDEN.search(expr)
    if forbidden is not None:
        raise CronError(
            "bad_character",
            f"expected printable ASCII with blanks or tabs between fields, got {forbidden.group()!a}",
            token=forbidden.group(),
        )
    text = expr.strip(" \t").lower()
    if text.startswith(("tz=", "cron_tz=")):
        raise CronError(
            "tz_prefix",
            f"expected five fields, got {shown(expr)}; give the time zone in the schedule's tz instead",
            token=text.split("=")[0] + "=",
        )
    if text.startswith("@"):
        if text not in _MACROS:
            raise CronError("unknown_macro", f"expected one of {', '.join(_MACROS)}, got {shown(expr)}", token=text)
        text = _MACROS[text]
    fields = re.split(r"[ \t]+", text)
    if len(fields) != len(FIELDS):
        raise CronError(
            "field_count",
            f"expected five fields (minute hour day month weekday), got {len(fields)};"
            " seconds and years are not supported",
        )
    return fields


def _day_rule(
    month: tuple[int, ...],
    dom: tuple[int, ...],
    dow: tuple[int, ...],
    dom_items: Sequence[Item],
    dow_items: Sequence[Item],
    both: bool,
) -> DayRule:
    return DayRule(
        month=month,
        dom=dom,
        dow=dow,
        both=both,
        dom_last=tuple(sorted({item.first or 0 for item in dom_items if item.form == "last"})),
        dom_near=tuple(sorted({item.first or 0 for item in dom_items if item.form == "near"})),
        dom_last_working=any(item.form == "last_working" for item in dom_items),
        dow_nth=tuple(sorted({((item.first or 0) % 7, item.second or 0) for item in dow_items if item.form == "nth"})),
        dow_last=tuple(sorted({(item.first or 0) % 7 for item in dow_items if item.form == "last_of"})),
    )


def _is_star(text: str) -> bool:
    """cronie's star bit: the text of a day field begins with a star, so `*/2` counts and `1-31` does not."""
    return text.startswith(("*", "?"))


def _check_seed(items: Sequence[Sequence[Item]], seed: str | None) -> None:
    if seed is not None:
        return
    for field, members in zip(FIELDS, items, strict=True):
        for item in members:
            if item.form == "hash":
                raise CronError(
                    "hash_seed_missing",
                    f"expected the id of a schedule to draw H of the {field.name} field from, got none",
                    field.name,
                    item.token,
                )


def _check_policy(name: str, value: str, known: tuple[str, ...]) -> None:
    if value != "auto" and value not in known:
        message = f"expected {name} to be one of auto, {', '.join(known)}, got {value!r}"
        raise TimingError("bad_policy", message, token=str(value))


def _warnings(fields: Sequence[str], items: Sequence[Sequence[Item]]) -> list[str]:
    found = []
    for field, members in zip(FIELDS, items, strict=True):
        found += [_wide_step(field, item) for item in members if is_wide_step(field, item)]
    dom, dow = fields[2], fields[4]
    for field, text, other in ((DOM, dom, dow), (DOW, dow, dom)):
        if text.startswith("*/") and not _is_star(other):
            found.append(f"{text} in the {field.name} field begins with a star, so a date must match both day fields")
    if not _is_star(dom) and not _is_star(dow):
        found.append("both day fields are restricted, so a date that matches either of them fires")
    return found


def _wide_step(field: Field, item: Item) -> str:
    return f"the step of {item.token} in the {field.name} field is wider than its range, so only its first value fires"
