"""Which timing of a schedule held when, and what it made: occurrences inside its bounds, and the nearest ones around an instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor

from bucketd.store.evidence import Deed, Standing, Version
from bucketd.timing import CronSpec, EverySpec, Spec, TimingError, fires_between, load_rule, next_fire, previous_fire

LAST_S = 2**32  # a fire carries its instant in 32 bits
TIMING = ("spec_id", "phase", "jitter_s", "starts_at", "ends_at", "retimes")  # columns that make a new version


@dataclass(frozen=True, slots=True)
class Era:
    """One version of a schedule's timing and the instants [from_s, until_s) that it holds for. `spec` None: it cannot be computed."""

    version: int
    spec: Spec | None
    phase: int
    jitter_s: int
    from_at: datetime
    until_at: datetime | None
    is_current: bool

    @property
    def tz(self) -> str:
        return self.spec.tz if isinstance(self.spec, CronSpec | EverySpec) else "UTC"

    def holds(self, at: datetime) -> bool:
        return self.from_at <= at and (self.until_at is None or at < self.until_at)

    def fires(self, start_s: int, end_s: int, limit: int | None = None, *, bounded: bool = True) -> list[int]:
        """Occurrences in [start_s, end_s); `bounded`: only those for which it holds."""
        if self.spec is None:
            return []
        if bounded:
            start_s = max(start_s, ceil(self.from_at.timestamp()))
            end_s = end_s if self.until_at is None else min(end_s, ceil(self.until_at.timestamp()))
        return fires_between(self.spec, start_s, end_s, self.phase, limit) if start_s < end_s else []

    def before(self, at: datetime) -> datetime | None:
        """The last occurrence before an instant while it held."""
        if self.spec is None:
            return None
        edge = at if self.until_at is None else min(at, self.until_at)
        found = previous_fire(self.spec, ceil(edge.timestamp()), self.phase)
        return instant(found) if found is not None and found >= self.from_at.timestamp() else None

    def after(self, at: datetime) -> datetime | None:
        """The first occurrence after an instant while it held."""
        if self.spec is None:
            return None
        found = next_fire(self.spec, max(floor(at.timestamp()), ceil(self.from_at.timestamp()) - 1), self.phase)
        if found is None or found >= LAST_S or not self.holds(instant(found)):
            return None
        return instant(found)


class Timeline:
    """The timings of a schedule around an instant, oldest first; the last one is today's."""

    def __init__(self, schedule: Standing, versions: Iterable[Version]) -> None:
        self.eras = [
            Era(v.number, _loaded(v.rule), v.phase, v.jitter_offset_s, v.valid_from, v.valid_until, False)
            for v in versions
        ]
        from_at = max(schedule.timing_from, schedule.starts_at or schedule.timing_from)
        ends_at = schedule.ends_at and max(schedule.ends_at, from_at)
        now = _loaded(schedule.rule)
        self.current = Era(
            schedule.timing_version, now, schedule.phase, schedule.jitter_offset_s, from_at, ends_at, True
        )
        self.eras.append(self.current)

    def holding(self, at: datetime) -> Era | None:
        """The timing that held for an instant."""
        return next((era for era in self.eras if era.holds(at)), None)

    def nearest(self, at: datetime) -> Era:
        """The timing that held for an instant, or else the one that held nearest to it."""
        return min(self.eras, key=lambda era: (_distance(era, at), -era.version))

    def fires(self, start_s: int, end_s: int, limit: int) -> list[tuple[int, Era]]:
        """Occurrences in [start_s, end_s), each of the timing that held, ascending; at most `limit`."""
        found: list[tuple[int, Era]] = []
        for era in self.eras:
            found += [(at_s, era) for at_s in era.fires(start_s, end_s, limit - len(found))]
        return found

    def before(self, at: datetime) -> datetime | None:
        """The last occurrence before an instant, by whatever timing held."""
        return max((found for era in self.eras if (found := era.before(at))), default=None)

    def after(self, at: datetime) -> datetime | None:
        """The first occurrence after an instant, by whatever timing held or holds."""
        return min((found for era in self.eras if (found := era.after(at))), default=None)


def expression_at(schedule: Standing, deeds: Sequence[Deed], at: datetime) -> str:
    """The expression that the schedule had at an instant, as typed; the present one if the audit log knows no other."""
    for deed in deeds:
        if deed.object_id == str(schedule.id) and deed.at > at and deed.changes.get("expression"):
            return str(deed.changes["expression"][0])
    return schedule.expression


def retimed(schedule: Standing, deeds: Iterable[Deed], at: datetime) -> Deed | None:
    """The first deed from an instant on that changed the timing: who ended the version that held until then."""
    own = (deed for deed in deeds if deed.object_id == str(schedule.id) and deed.at >= at)
    return next((deed for deed in own if any(column in deed.changes for column in TIMING)), None)


def instant(at_s: int) -> datetime:
    """The aware datetime of epoch seconds."""
    return datetime.fromtimestamp(at_s, UTC)


def _distance(era: Era, at: datetime) -> timedelta:
    if at < era.from_at:
        return era.from_at - at
    return timedelta(0) if era.until_at is None or at < era.until_at else at - era.until_at


def _loaded(rule: str | None) -> Spec | None:
    try:
        return None if rule is None else load_rule(rule)
    except TimingError:
        return None
