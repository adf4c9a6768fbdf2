"""A rule in time, normalised: what table `specs` stores once, however many schedules share it.

`rule()` is canonical text: equal rules have equal text and the other way round, so it serves as the unique key. Sets
are stored expanded and policies resolved, so no upgrade of a library or of a default moves a stored schedule.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from bucketd.timing.days import DayRule
from bucketd.timing.errors import TimingError
from bucketd.timing.exclusions import ExcludedTime
from bucketd.timing.offsets import DAY_S, FIRST_S, LAST_S, ZoneOffsets, offsets_of
from bucketd.timing.walls import Walls, walls_of

GAPS = ("run_after", "skip", "shift")
FOLDS = ("first", "second", "both")


@dataclass(frozen=True, slots=True)
class CronSpec:
    """Sorted sets of minutes and hours, days, zone; `gap` and `fold` say what missing and repeated wall times do."""

    kind: ClassVar[str] = "cron"
    minute: tuple[int, ...]
    hour: tuple[int, ...]
    days: DayRule
    tz: str
    gap: str
    fold: str
    exclude: tuple[int, ...] = ()  # day numbers (1970-01-01 is 0) without an occurrence
    # Shared tables behind the fields above, resolved once so that next_fire does not look them up.
    walls: Walls = field(init=False, repr=False, compare=False)
    offsets: ZoneOffsets = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "walls", walls_of(self.days, self.hour, self.minute, self.exclude))
        object.__setattr__(self, "offsets", offsets_of(self.tz))

    def rule(self) -> str:
        days = self.days
        parts: dict[str, Any] = {
            "kind": "cron",
            "minute": self.minute,
            "hour": self.hour,
            "month": days.month,
            "dom": days.dom,
            "dow": days.dow,
            "days": "both" if days.both else "either",
            "tz": self.tz,
            "gap": self.gap,
            "fold": self.fold,
        }
        rare = {name: getattr(days, name) for name in _RARE} | {"exclude": self.exclude}
        return _canonical(parts | {name: value for name, value in rare.items() if value})

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_rule, (self.rule(),))


@dataclass(frozen=True, slots=True)
class EverySpec:
    """Each `every_s` seconds of elapsed time, counted from the epoch plus the schedule's phase; `tz` says when excluded dates are."""

    kind: ClassVar[str] = "every"
    every_s: int
    exclude: tuple[int, ...] = ()
    tz: str = "UTC"
    excluded: ExcludedTime | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.exclude:
            object.__setattr__(self, "excluded", ExcludedTime(offsets_of(self.tz), self.exclude))
        if isinstance(self.every_s, bool) or not isinstance(self.every_s, int) or self.every_s < 1:
            raise TimingError("bad_duration", f"expected an interval of at least 1 second, got {self.every_s!r}")

    def rule(self) -> str:
        parts: dict[str, Any] = {"kind": "every", "every_s": self.every_s}
        if self.exclude:
            parts["exclude"] = self.exclude
        if self.tz != "UTC":
            parts["tz"] = self.tz
        return _canonical(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_rule, (self.rule(),))


@dataclass(frozen=True, slots=True)
class AtSpec:
    """One instant, which is the schedule's phase (epoch seconds): all one-shots share this one spec."""

    kind: ClassVar[str] = "at"

    def rule(self) -> str:
        return _canonical({"kind": "at"})


Spec = CronSpec | EverySpec | AtSpec

_RARE = ("dom_last", "dom_near", "dom_last_working", "dow_nth", "dow_last")


def load_rule(text: str) -> Spec:
    """The spec whose `rule()` is `text`. Raises `TimingError` (code ``bad_rule``) for text that no `rule()` wrote."""
    try:
        spec = _from_parts(json.loads(text))
    except TimingError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _bad_rule(text) from error
    if spec.rule() != text:
        raise _bad_rule(text)
    return spec


def _from_parts(parts: dict[str, Any]) -> Spec:
    kind = parts["kind"]
    if kind == "every":
        tz = parts.get("tz", "UTC")
        offsets_of(tz)  # raises for what is no zone
        return EverySpec(parts["every_s"], _excluded(parts), tz)
    if kind == "at":
        return AtSpec()
    if kind != "cron" or parts["gap"] not in GAPS or parts["fold"] not in FOLDS:
        raise ValueError(kind)
    days = DayRule(
        month=_numbers(parts["month"], 1, 12, least=1),
        dom=_numbers(parts["dom"], 1, 31),
        dow=_numbers(parts["dow"], 0, 6),
        both={"both": True, "either": False}[parts["days"]],
        dom_last=_numbers(parts.get("dom_last", []), 0, 30),
        dom_near=_numbers(parts.get("dom_near", []), 1, 31),
        dom_last_working=parts.get("dom_last_working") is True,
        dow_nth=_pairs(parts.get("dow_nth", [])),
        dow_last=_numbers(parts.get("dow_last", []), 0, 6),
    )
    minute, hour = _numbers(parts["minute"], 0, 59, least=1), _numbers(parts["hour"], 0, 23, least=1)
    return CronSpec(minute, hour, days, parts["tz"], parts["gap"], parts["fold"], _excluded(parts))


# Holiday calendars are few and shared by very many specs: one tuple each in memory.
_shared_days = lru_cache(maxsize=1_024)(tuple[int, ...])


def _excluded(parts: dict[str, Any]) -> tuple[int, ...]:
    days = _numbers(parts.get("exclude", []), FIRST_S // DAY_S, LAST_S // DAY_S)
    return _shared_days(days) if days else days


def _numbers(values: list[int], lo: int, hi: int, least: int = 0) -> tuple[int, ...]:
    """A sorted set inside its bounds. Whatever else is written there would be a schedule that never fires, or worse."""
    if len(values) < least or any(type(value) is not int for value in values):
        raise ValueError(values)
    if values != sorted(set(values)) or (values and not lo <= values[0] <= values[-1] <= hi):
        raise ValueError(values)
    return tuple(values)


def _pairs(values: list[list[int]]) -> tuple[tuple[int, int], ...]:
    pairs = [(weekday, k) for weekday, k in values]
    if pairs != sorted(set(pairs)) or any(weekday not in range(7) or k not in range(1, 6) for weekday, k in pairs):
        raise ValueError(values)
    return tuple(pairs)


def _canonical(parts: dict[str, Any]) -> str:
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def _bad_rule(text: str) -> TimingError:
    return TimingError("bad_rule", f"expected a stored rule as bucketd writes it, got {text[:200]!r}", token=text[:200])
