"""What other data of one zone move: the periods in which its offset differs, and the first fire of a spec that does.

Fires depend on offsets alone. So those of two releases can differ only near instants at which their offsets do, and only there
are they compared.
"""

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from bucketd.timing.exclusions import ExcludedTime
from bucketd.timing.occurrences import fires_between, next_fire
from bucketd.timing.offsets import DAY_S, ZoneOffsets
from bucketd.timing.spec import CronSpec, EverySpec, Spec
from bucketd.timing.zones import zone, zone_of

# A difference is felt this far around: the largest jump is 24 h, and a wall time lies less than a day from its instant.
_REACH_S = 2 * DAY_S
# Compared at once: 11,520 fires of a cron of each minute, 21,600 of an interval of a second.
_CRON_SLICE_S = 8 * DAY_S
_EVERY_SLICE_S = DAY_S // 4


class Period(NamedTuple):
    """UTC instants from_s <= t < until_s (of those looked at) at which the old and the new data show different local times."""

    from_s: int
    until_s: int
    old_offset_s: int
    new_offset_s: int


class Move(NamedTuple):
    """Where two lists of fires part: the next fire by the old and by the new data. None: there is none any more."""

    old_s: int | None
    new_s: int | None

    @property
    def at_s(self) -> int:
        """The earlier of the two: from here on the lists differ."""
        return min(at for at in self if at is not None)


class ZoneShift:
    """The zone called `name` by older data (a TZif file) against the pinned ones, in start_s <= t < end_s.

    Raises ValueError if the data are no TZif file, and as `zone` does.
    """

    def __init__(self, name: str, old_data: bytes, start_s: int, end_s: int) -> None:
        self.name = name
        self.start_s, self.end_s = start_s, end_s
        self._old, self._new = ZoneOffsets(zone_of(old_data, name)), ZoneOffsets(zone(name))

    @cached_property
    def periods(self) -> list[Period]:
        """All periods of the window, ascending."""
        found: list[Period] = []
        at_s = self.start_s
        while at_s < self.end_s:
            old, new = self._old.at(at_s), self._new.at(at_s)
            until_s = min(old.hi_s, new.hi_s, self.end_s)
            period = Period(at_s, until_s, old.offset_s, new.offset_s)
            if found and found[-1][1:] == (at_s, *period[2:]):  # a stretch ends where its chunk does
                found[-1] = found[-1]._replace(until_s=until_s)
            elif old.offset_s != new.offset_s:
                found.append(period)
            at_s = until_s
        return found

    def differs_in(self, start_s: int, end_s: int) -> bool:
        """Whether fires may differ in [start_s, end_s)."""
        return any(p.from_s - _REACH_S < end_s and start_s < p.until_s + _REACH_S for p in self.periods)

    def by_old(self, spec: Spec) -> Spec:
        """The spec as the old data have it. Only for a spec of this zone."""
        if isinstance(spec, CronSpec):
            cron = replace(spec)
            object.__setattr__(cron, "offsets", self._old)
            return cron
        if isinstance(spec, EverySpec) and spec.exclude:
            every = replace(spec)
            object.__setattr__(every, "excluded", ExcludedTime(self._old, spec.exclude))
            return every
        return spec

    def slices(self, spec: Spec) -> list[tuple[int, int]]:
        """Where the fires of a spec of this zone may differ, ascending, in pieces that are compared in some milliseconds."""
        if isinstance(spec, CronSpec):
            return self._around
        if not isinstance(spec, EverySpec):
            return []
        found: list[tuple[int, int]] = []
        for day in spec.exclude:  # beside its excluded dates an interval knows no zone
            start_s, end_s = max((day - 1) * DAY_S, self.start_s), min((day + 2) * DAY_S, self.end_s)
            if self.differs_in(start_s, end_s):
                start_s = max(start_s, found[-1][1]) if found else start_s
                found += _pieces(start_s, end_s, _EVERY_SLICE_S)
        return found

    def first_move(self, spec: Spec, phase: int = 0, from_s: int | None = None) -> Move | None:
        """The first difference between the fires by old and by new data in the window, not before `from_s`; None: there is none."""
        old, from_s = self.by_old(spec), self.start_s if from_s is None else from_s
        for start_s, end_s in self.slices(spec):
            if end_s > from_s and (move := parting(old, spec, max(start_s, from_s), end_s, phase)):
                return move
        return None

    @cached_property
    def _around(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at_s = self.start_s
        for period in self.periods:
            at_s, until_s = max(at_s, period.from_s - _REACH_S), min(period.until_s + _REACH_S, self.end_s)
            found += _pieces(at_s, until_s, _CRON_SLICE_S)
            at_s = max(at_s, until_s)
        return found


def _pieces(start_s: int, end_s: int, length_s: int) -> list[tuple[int, int]]:
    return [(at_s, min(at_s + length_s, end_s)) for at_s in range(start_s, end_s, length_s)]


def parting(old: Spec, new: Spec, start_s: int, end_s: int, phase: int = 0) -> Move | None:
    """Where the fires of two specs in start_s <= t < end_s part; None: they are the same."""
    olds, news = fires_between(old, start_s, end_s, phase), fires_between(new, start_s, end_s, phase)
    if olds == news:
        return None
    same = next((n for n, (one, other) in enumerate(zip(olds, news, strict=False)) if one != other), None)
    if same is None:
        same = min(len(olds), len(news))
    last_s = olds[same - 1] if same else start_s - 1
    return Move(next_fire(old, last_s, phase), next_fire(new, last_s, phase))
