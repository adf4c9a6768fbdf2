"""When a schedule fires, as its author says it: `cron`, `every`, `at`. Checked when made, so a wrong one fails where it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

from bucketd.errors import CronError, InvalidCron, InvalidInput, TimingError
from bucketd.store.specs import SpecRow
from bucketd.timing import AtSpec, EverySpec, is_zone, parse_cron, parse_duration

_ANY_SEED = str(UUID(int=0))  # H needs some seed to be checked before there is a schedule
_LAST_S = 2**32 - 1  # a fire carries its instant in 32 bits


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone. Make it with `cron`."""

    expression: str
    tz: str = "UTC"
    gap: str = "auto"
    fold: str = "auto"
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Every:
    """An interval of elapsed time. Make it with `every`."""

    every_s: int
    phase: int | None = None
    text: str = field(default="", compare=False, repr=False)
    tz: str = "UTC"


@dataclass(frozen=True, slots=True)
class At:
    """One instant, a whole second of UTC. Make it with `at`."""

    at: datetime


Timing: TypeAlias = Cron | Every | At


def cron(expression: str, tz: str = "UTC", gap: str = "auto", fold: str = "auto") -> Cron:
    """Fires when the wall clock of `tz` (an IANA name) matches five fields (minute hour day month weekday; Sunday 0 or 7) or a macro.

    `gap` says what happens to a wall time that a change of the clocks leaves out (run_after, skip, shift), `fold` which of two
    equal ones counts (first, second, both); auto decides by whether the expression matches every hour. `H` is a number that is
    drawn from the schedule's id, so that many schedules spread.

    Raises InvalidCron (an InvalidInput): a bad expression, an unknown zone, an expression that never fires.
    """
    try:
        _, warnings = parse_cron(expression, tz, gap=gap, fold=fold, seed=_ANY_SEED)
    except TimingError as error:
        raise invalid(error) from error
    return Cron(expression, tz, gap, fold, warnings)


def every(interval: str | int | timedelta, phase: str | int | timedelta | None = None, tz: str = "UTC") -> Every:
    """Fires each `interval` of elapsed time: seconds, a timedelta, or text such as "90s", "15m", "1h30m", "2d".

    The instants are whole multiples of the interval since 1970-01-01T00:00:00Z plus `phase` (likewise; below the interval).
    Without a phase each schedule gets one of its own, drawn from its id, so that many schedules spread. `tz` only says when an
    excluded date of the schedule begins and ends.

    Raises InvalidInput: no duration of whole seconds from 1 s to 3,650 days, a phase out of range, an unknown zone.
    """
    try:
        every_s = parse_duration(interval)
        phase_s = phase if phase is None or phase == 0 else parse_duration(phase)
    except TimingError as error:
        raise InvalidInput(str(error), field="timing") from error
    if isinstance(phase, bool) or (phase_s is not None and not 0 <= int(phase_s) < every_s):  # type: ignore[arg-type]
        raise InvalidInput(
            f"expected a phase from 0 s to below the interval of {every_s} s, got {phase!r}", field="timing"
        )
    text = interval if isinstance(interval, str) else f"{every_s}s"
    if not isinstance(tz, str) or not is_zone(tz):
        raise InvalidInput(f"expected the name of an IANA time zone, got {tz!r}", field="timing.tz")
    return Every(every_s, None if phase_s is None else int(phase_s), text, tz)  # type: ignore[arg-type]


def at(instant: datetime) -> At:
    """Fires once, at `instant` (an aware datetime), rounded up to a whole second: never early.

    Raises InvalidInput: a naive datetime, an instant before 1970 or after 2106-02-07.
    """
    second_s = math.ceil(aware(instant, "timing").timestamp())
    if not 0 <= second_s <= _LAST_S:
        raise InvalidInput(f"expected an instant from 1970 to 2106-02-07, got {instant.isoformat()}", field="timing")
    return At(datetime.fromtimestamp(second_s, UTC))


def aware(instant: object, name: str) -> datetime:
    """The instant in UTC. Raises InvalidInput for anything but an aware datetime."""
    if not isinstance(instant, datetime):
        raise InvalidInput(f"expected a datetime in {name}, got {instant!r}", field=name)
    if instant.utcoffset() is None:
        raise InvalidInput(
            f"expected a datetime with a time zone in {name}, got {instant.isoformat()};"
            " add one, such as tzinfo=datetime.timezone.utc",
            field=name,
        )
    return instant.astimezone(UTC)


def spec_of(timing: Timing, schedule_id: UUID, excluded: tuple[int, ...] = ()) -> SpecRow:
    """The rule to store, without `excluded` days (numbers, 1970-01-01 is 0). H is drawn from the schedule's id.

    Raises InvalidCron: with this H no date matches.
    """
    match timing:
        case Cron():
            return _cron_spec(
                timing.expression, timing.tz, timing.gap, timing.fold, _seed(timing.expression, schedule_id), excluded
            )
        case Every():
            return _every_spec(timing.every_s, timing.tz, excluded)
        case At():
            return _AT


def phase_of(timing: Timing, schedule_id: UUID, kept: int | None) -> int:
    """The schedule's phase, seconds. `kept`: the one it has now, if its interval is the same."""
    match timing:
        case Cron():
            return 0
        case Every():
            if timing.phase is not None:
                return timing.phase
            return kept if kept is not None else own_phase(schedule_id, timing.every_s)
        case At():
            return int(timing.at.timestamp())


def own_phase(schedule_id: UUID, every_s: int) -> int:
    """The phase that an interval gets by default: the same on every machine, and spread over the interval."""
    return int.from_bytes(sha256(schedule_id.bytes).digest()[:8], "big") % every_s


def expression_of(timing: Timing) -> str:
    """The text that the schedule keeps, as typed."""
    match timing:
        case Cron():
            return timing.expression
        case Every():
            return timing.text or f"{timing.every_s}s"
        case At():
            return timing.at.strftime("%Y-%m-%dT%H:%M:%SZ")


def invalid(error: TimingError) -> InvalidInput:
    """The error of the timing module as one of the client's."""
    if isinstance(error, CronError):
        return InvalidCron(error.code, str(error), f"timing.{error.field}" if error.field else "timing", error.token)
    return InvalidInput(str(error), field="timing")


def _seed(expression: str, schedule_id: UUID) -> str:
    # The letter may belong to THU; then the seed only costs an entry of the cache.
    return str(schedule_id) if "h" in expression.lower() else ""


@lru_cache(maxsize=65_536)
def _cron_spec(expression: str, tz: str, gap: str, fold: str, seed: str, excluded: tuple[int, ...]) -> SpecRow:
    try:
        spec, _ = parse_cron(expression, tz, gap=gap, fold=fold, seed=seed or _ANY_SEED)
    except TimingError as error:
        raise invalid(error) from error
    return SpecRow(replace(spec, exclude=excluded).rule(), "cron", None)


@lru_cache(maxsize=4_096)
def _every_spec(every_s: int, tz: str, excluded: tuple[int, ...]) -> SpecRow:
    return SpecRow(EverySpec(every_s, excluded, tz).rule(), "every", every_s)


_AT = SpecRow(AtSpec().rule(), "at", None)
