"""JSONL of schedules: a line to what the client takes, or to the reason why not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bucketd.cli import options
from bucketd.cli.shapes import timing_from
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client.inputs import ScheduleInput

KNOWN = (
    "name", "cron", "every", "at", "tz", "gap", "fold", "phase", "target", "payload", "tenant", "labels", "timeout",
    "max_attempts", "retry_base", "retry_cap", "overlap", "misfire", "misfire_threshold", "deadline", "catch_up_window",
    "catch_up_cap", "jitter", "starts_at", "ends_at", "max_runs", "exclude", "calendars", "paused",
)  # fmt: skip


_LENGTHS = ("phase", "timeout", "misfire_threshold", "deadline", "catch_up_window", "jitter")


class LineProblem(InvalidInput):
    """A line that cannot be used, with the identity it would have had, as far as it could be read."""

    def __init__(self, message: str, tenant: str, name: str, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.tenant = tenant
        self.name = name


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank, and what it says or why it says nothing."""

    number: int
    wanted: ScheduleInput | LineProblem


def read_lines(raw: Iterable[bytes], default_tenant: str, default_target: str | None) -> Iterator[Line]:
    """The lines of a file, numbered from 1; a name that stood before is a problem of the later line."""
    seen: dict[tuple[str, str], int] = {}
    for number, content in enumerate(raw, 1):
        if not content.strip():
            continue
        wanted = _read(content, default_tenant, default_target)
        first = seen.setdefault((wanted.tenant, wanted.name), number) if wanted.name else number
        if first != number and not isinstance(wanted, LineProblem):
            again = f"name: stands on line {first} already (tenant {wanted.tenant!r})"
            wanted = LineProblem(again, wanted.tenant, wanted.name, "name")
        yield Line(number, wanted)


def _read(content: bytes, default_tenant: str, default_target: str | None) -> ScheduleInput | LineProblem:
    tenant, name = default_tenant, ""
    try:
        values = _object(content)
        name = values["name"] if isinstance(values.get("name"), str) else ""
        tenant = values["tenant"] if isinstance(values.get("tenant"), str) else default_tenant
        if unknown := sorted(set(values) - set(KNOWN)):
            raise InvalidInput(f"unknown field {', '.join(map(repr, unknown))}; known: {', '.join(KNOWN)}")
        return _wanted({"tenant": default_tenant, "target": default_target} | values)
    except InvalidInput as error:
        code = getattr(error, "code", "")  # of a cron expression: a stable word that says why
        return LineProblem(f"{code}: {error}" if code else str(error), tenant, name, error.field)


def _object(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise InvalidInput("expected UTF-8, got other bytes") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"expected one JSON object a line, got something else: {error.msg} at character {error.pos + 1}"
        ) from None
    except RecursionError:
        raise InvalidInput("expected JSON, got some that is nested too deep") from None
    if not isinstance(values, dict):
        raise InvalidInput(f"expected a JSON object, got {type(values).__name__}")
    return values


def _distinct(found: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(found)
    if len(values) != len(found):
        twice = next(key for key in values if sum(key == other for other, _ in found) > 1)
        raise InvalidInput(f"{twice}: stands twice in one object")
    return values


def _no_constant(text: str) -> Any:
    raise InvalidInput(f"expected JSON, got {text}, which is none")


def _wanted(values: Mapping[str, Any]) -> ScheduleInput:
    from bucketd.client.inputs import ScheduleInput

    texts = {
        key: _text(values, key)
        for key in ("name", "cron", "at", "tz", "gap", "fold", "target", "tenant", "overlap", "misfire")
    }
    if not texts["name"]:
        raise InvalidInput("name: expected a text, got none")
    if not texts["target"]:
        raise InvalidInput("target: expected the name of a target here or in --target, got none")
    lengths = {key: _length(values, key) for key in _LENGTHS}
    optional: dict[str, Any] = {
        "timeout_s": lengths["timeout"],
        "max_attempts": _checked(values, "max_attempts", int, "a whole number"),
        "retry_base_s": options.maybe_fraction(values.get("retry_base"), "retry_base"),
        "retry_cap_s": options.maybe_fraction(values.get("retry_cap"), "retry_cap"),
        "overlap": texts["overlap"],
        "misfire": texts["misfire"],
        "misfire_threshold_s": lengths["misfire_threshold"],
        "deadline_s": lengths["deadline"],
        "catch_up_window_s": lengths["catch_up_window"],
        "catch_up_cap": _checked(values, "catch_up_cap", int, "a whole number"),
        "max_runs": _checked(values, "max_runs", int, "a whole number"),
        "exclude": options.dates(_texts(values, "exclude"), "exclude") or None,
        "calendars": _texts(values, "calendars") or None,
        "jitter_s": lengths["jitter"],
        "starts_at": options.maybe_instant(_text(values, "starts_at"), "starts_at"),
        "ends_at": options.maybe_instant(_text(values, "ends_at"), "ends_at"),
        "paused": _checked(
            values, "paused", bool, "true or false"
        ),  # absent: as it is; a file must not end an operator's pause
        "labels": _labels(values),
    }
    return ScheduleInput(
        name=texts["name"],
        timing=timing_from(
            cron=texts["cron"],
            every=_every(values),
            at=texts["at"],
            tz=texts["tz"],
            gap=texts["gap"] or "auto",
            fold=texts["fold"] or "auto",
            phase=lengths["phase"],
        ),
        target=texts["target"],
        payload=values.get("payload"),
        tenant=texts["tenant"] or "default",
        **{key: value for key, value in optional.items() if value is not None},
    )


def _checked(values: Mapping[str, Any], key: str, kind: type, words: str) -> Any:
    """`values[key]`, absent and null being None. Raises InvalidInput if it is of another kind."""
    value = values.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(f"{key}: expected {words}, got {json.dumps(value)[:80]}", field=key)
    return value


def _text(values: Mapping[str, Any], key: str) -> str | None:
    text: str | None = _checked(values, key, str, "a text")
    return text


def _length(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    if key in ("phase", "jitter") and value in (0, "0", "0s") and not isinstance(value, bool):
        return 0
    return None if value is None else options.seconds(value, key)


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    found: list[Any] = _checked(values, key, list, "a list of texts") or []
    for value in found:
        if not isinstance(value, str):
            raise InvalidInput(f"{key}: expected a list of texts, got {json.dumps(value)[:80]} in it", field=key)
    return found


def _every(values: Mapping[str, Any]) -> str | int | None:
    value = values.get("every")
    return (
        None if value is None else options.seconds(value, "every") if isinstance(value, int) else _text(values, "every")
    )


def _labels(values: Mapping[str, Any]) -> dict[str, str] | None:
    found: dict[str, str] | None = _checked(values, "labels", dict, "an object of texts")
    for key, value in (found or {}).items():
        if not isinstance(value, str):
            raise InvalidInput(f"labels: expected a text for {key!r}, got {json.dumps(value)[:80]}", field="labels")
    return found
