"""A schedule in three shapes: options or file fields, a line of a file, a line on a screen."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bucketd.cli import options
from bucketd.cli.output import cell, iso
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client.results import Schedule
    from bucketd.client.timings import Timing

# What `export` leaves out and `apply` takes for granted; the client has the same defaults. That of overlap hangs on the timing.
DEFAULTS: dict[str, Any] = {
    "misfire": "run_once",
    "misfire_threshold": "60s",
    "catch_up_window": "86400s",
    "catch_up_cap": 1_000,
    "jitter": "0s",
    "tenant": "default",
    "paused": False,
    "gap": "auto",
    "fold": "auto",
    "tz": "UTC",
}


_MAYBE = (
    "payload", "labels", "timeout", "max_attempts", "retry_base", "retry_cap", "deadline", "starts_at", "ends_at", "max_runs",
    "exclude", "calendars",
)  # fmt: skip
_ALWAYS = (
    "misfire", "misfire_threshold", "catch_up_window", "catch_up_cap", "jitter", "paused", "tenant",
)  # fmt: skip


def timing_from(
    *,
    cron: str | None,
    every: str | int | None,
    at: str | None,
    tz: str | None = None,
    gap: str = "auto",
    fold: str = "auto",
    phase: str | int | None = None,
) -> Timing:
    """The one timing that was given. Raises InvalidInput: none or several, or a word that belongs to another kind."""
    from bucketd.client import timings

    given = [kind for kind, value in (("cron", cron), ("every", every), ("at", at)) if value is not None]
    if len(given) != 1:
        raise InvalidInput(
            f"timing: expected exactly one of cron, every and at, got {' and '.join(given) or 'none'}", field="timing"
        )
    if at is not None and tz:
        raise InvalidInput("tz: expected only with cron and every, got it with at", field="tz")
    if cron is None and (gap != "auto" or fold != "auto"):
        raise InvalidInput(f"gap and fold: expected only with cron, got them with {given[0]}", field="gap")
    if every is None and phase is not None:
        raise InvalidInput(f"phase: expected only with every, got it with {given[0]}", field="phase")
    if cron is not None:
        return timings.cron(cron, tz or "UTC", gap, fold)
    if every is not None:
        return timings.every(every, None if phase is None else 0 if phase in (0, "0", "0s") else phase, tz or "UTC")
    assert at is not None
    return timings.at(options.instant(at, "at"))


def schedule_line(schedule: Schedule) -> dict[str, Any]:
    """The fields of a JSONL line, without those that have their default: it reads as someone would write it."""
    from bucketd.client.inputs import default_overlap

    defaults = DEFAULTS | {"overlap": default_overlap(schedule.timing)}
    full: dict[str, Any] = {
        "tenant": schedule.tenant,
        "name": schedule.name,
        **_timing_fields(schedule),
        "target": schedule.target,
        "payload": schedule.payload,
        "labels": dict(schedule.labels) or None,
        "timeout": _seconds(schedule.timeout_s),
        "max_attempts": schedule.max_attempts,
        "retry_base": _seconds(schedule.retry_base_s),
        "retry_cap": _seconds(schedule.retry_cap_s),
        "overlap": schedule.overlap,
        "misfire": schedule.misfire,
        "misfire_threshold": _seconds(schedule.misfire_threshold_s),
        "deadline": _seconds(schedule.deadline_s),
        "catch_up_window": _seconds(schedule.catch_up_window_s),
        "catch_up_cap": schedule.catch_up_cap,
        "jitter": _seconds(schedule.jitter_s),
        "starts_at": schedule.starts_at and iso(schedule.starts_at),
        # With max_runs the end follows from it.
        "ends_at": iso(schedule.ends_at) if schedule.ends_at and schedule.max_runs is None else None,
        "max_runs": schedule.max_runs,
        "exclude": [day.isoformat() for day in schedule.exclude] or None,
        "calendars": list(schedule.calendars) or None,
        "paused": schedule.paused,
    }
    return {key: value for key, value in full.items() if value is not None and value != defaults.get(key)}


def schedule_shown(schedule: Schedule) -> dict[str, Any]:
    """For `show` and --json: the fields of a line, none left out, and what bucketd set."""
    empty = dict.fromkeys(_MAYBE)
    own = {
        "id": str(schedule.id),
        "revision": schedule.revision,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
    }
    kind = _timing_fields(schedule)
    words = {key: DEFAULTS[key] for key in _ALWAYS}
    if "cron" in kind:
        words |= {key: DEFAULTS[key] for key in ("tz", "gap", "fold")}
    shown = own | empty | {"overlap": schedule.overlap} | words | schedule_line(schedule)
    if schedule.ends_at:
        shown["ends_at"] = iso(schedule.ends_at)
    pause = {"pause_reason": schedule.pause_reason, "paused_until": schedule.paused_until} if schedule.paused else {}
    return shown | pause


def schedule_row(schedule: Schedule) -> tuple[object, ...]:
    """A line of `schedule list`."""
    state = "paused" if schedule.paused else "active"
    labels = " ".join(f"{key}={value}" for key, value in schedule.labels.items())
    return schedule.tenant, schedule.name, timing_text(schedule), schedule.target, state, labels


def timing_text(schedule: Schedule) -> str:
    """A timing in a few words: `0 9 * * * Europe/Berlin`, `every 15m`, `at 2026-11-30T09:00:00Z`."""
    kind = _timing_fields(schedule)
    if "cron" in kind:
        return cell(f"{kind['cron']} {kind['tz']}")
    return cell(f"every {kind['every']}" if "every" in kind else f"at {kind['at']}")


def zone_of(schedule: Schedule) -> str:
    """The zone that its author thinks in."""
    from bucketd.client.timings import Cron, Every

    return schedule.timing.tz if isinstance(schedule.timing, Cron | Every) else "UTC"


def _timing_fields(schedule: Schedule) -> dict[str, Any]:
    from bucketd.client.timings import Cron, Every, own_phase

    timing = schedule.timing
    if isinstance(timing, Cron):
        gap, fold = _auto(timing.expression, timing.tz)
        return {
            "cron": timing.expression,
            "tz": timing.tz,
            "gap": "auto" if timing.gap == gap else timing.gap,
            "fold": "auto" if timing.fold == fold else timing.fold,
        }
    if isinstance(timing, Every):
        own = timing.phase is None or timing.phase == own_phase(schedule.id, timing.every_s)
        length = timing.text or f"{timing.every_s}s"
        return {"every": length, "phase": None if own else _seconds(timing.phase), "tz": timing.tz}
    return {"at": iso(timing.at.astimezone(UTC))}


@lru_cache(maxsize=65_536)
def _auto(expression: str, tz: str) -> tuple[str, str]:
    """What gap and fold `auto` stands for with this expression: policies are stored resolved."""
    from bucketd.timing import TimingError, parse_cron

    try:
        spec, _ = parse_cron(expression, tz, seed=str(UUID(int=0)))
    except TimingError:  # written by other means than the client, which keeps the text
        return "", ""
    return spec.gap, spec.fold


def _seconds(length_s: float | None) -> str | None:
    return None if length_s is None else f"{Decimal(str(length_s)).normalize():f}s"
