"""What H or a jitter would make of a peak on average: for more schedules than can be looked at one by one.

Each fire is taken off its second and spread evenly over those that it could be drawn to. Sums of differences keep that cheap: a
fire costs two additions, however wide it is spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from bucketd.forecast.curve import bounded, units_of
from bucketd.forecast.timetable import HOUR, Pattern
from bucketd.store.forecast import Group


class Expectation:
    """The fires of a region by second, and the groups (by second) that are at its peak: those due in minute `peak` of it.

    now_s: from the region's start; a change holds from there on. An interval's own jitter counts as part of its phase.
    """

    def __init__(
        self, before: Sequence[int], counts: Mapping[Group, int], patterns: Sequence[Pattern], peak: int, now_s: float
    ) -> None:
        self._before = before
        self._patterns = patterns
        self._now_s = now_s
        seconds = len(before)
        self._at_peak = {
            group: count
            for group, count in counts.items()
            if any(peak * 60 <= second < peak * 60 + 60 for second in units_of(group, patterns, 1, seconds))
        }

    def hashed(self) -> tuple[list[int], int]:
        """Fires of each second with H in the minute field, and how many schedules that changes."""
        stay, moved = [float(fires) for fires in self._before], 0
        # A slot becomes any of its minutes, at the same second of the minute: differences between seconds a minute apart.
        rises = _Rises(len(stay), 60)
        for group, count in self._at_peak.items():
            slots = () if group.pattern is None else self._patterns[group.pattern]
            if not any(slot.step > 1 for slot in slots):
                continue
            moved += count
            self._take(stay, group, count)
            earliest, end = self._bounds(group)
            for slot in slots:  # of fires out of bounds, too: H may move them in
                lo, hi = max(slot.lo, earliest), min(slot.lo + slot.step, end)
                rises.add(lo * 60 + group.a, hi * 60 + group.a, count / slot.step)
        return _rounded(stay, rises.sums()), moved

    def jittered(self, jitter_s: int) -> tuple[list[int], int]:
        """Fires of each second with this jitter, and how many schedules that changes."""
        stay = [float(fires) for fires in self._before]
        rises = _Rises(len(stay), 1)
        for group, count in self._at_peak.items():
            self._take(stay, group, count)
            width = jitter_s + 1
            for at_s in self._nominal(group, len(stay)):
                if at_s < self._now_s:
                    continue
                # Drawn evenly from `width` seconds, then folded below the period.
                folds, rest = divmod(width, group.every_s) if group.every_s else (0, width)
                if group.every_s:
                    rises.add(at_s, at_s + group.every_s, folds * count / width)
                rises.add(at_s, at_s + rest, count / width)
        return _rounded(stay, rises.sums()), sum(self._at_peak.values())

    def _bounds(self, group: Group) -> tuple[int, int]:
        """The minutes in which a changed cron may fire. A bound at the edge of what was asked is none."""
        earliest, minutes = ceil(self._now_s / 60), len(self._before) // 60
        if group.b > -HOUR:
            earliest = max(earliest, group.b)
        return earliest, group.c if group.c is not None and group.c < minutes else minutes + HOUR

    def _nominal(self, group: Group, seconds: int) -> list[int]:
        """Nominal instants that may be due in the region."""
        if group.pattern is not None:
            slots = bounded(group, self._patterns[group.pattern], seconds // 60)
            return [slot.minute * 60 for slot in slots if slot.minute >= -HOUR]
        dues = list(units_of(group, self._patterns, 1, seconds))
        if group.every_s:  # those just before the region, too
            dues += range(dues[0] - group.every_s, -HOUR * 60 - 1, -group.every_s)
        return dues

    def _take(self, stay: list[float], group: Group, count: int) -> None:
        for second in units_of(group, self._patterns, 1, len(stay)):
            stay[second] -= count


class _Rises:
    """Amounts added to every `stride`-th second of ranges, by their differences; ranges may reach over both edges."""

    def __init__(self, seconds: int, stride: int) -> None:
        self._stride = stride
        self._rises = [0.0] * (seconds + stride)

    def add(self, lo_s: int, hi_s: int, amount: float) -> None:
        """Adds to lo_s, lo_s + stride, .. below hi_s; the two are whole strides apart."""
        lo_s = max(lo_s, lo_s % self._stride)
        if lo_s >= hi_s or lo_s >= len(self._rises):
            return
        self._rises[lo_s] += amount
        if hi_s < len(self._rises):
            self._rises[hi_s] -= amount

    def sums(self) -> list[float]:
        """The amount of each second."""
        found = list(self._rises)
        for second in range(self._stride, len(found)):
            found[second] += found[second - self._stride]
        return found[: len(found) - self._stride]


def _rounded(stay: Sequence[float], added: Sequence[float]) -> list[int]:
    """Whole fires a second; what rounding leaves over is carried to the next second, so that minutes keep their sums."""
    found, carried = [], 0.0
    for exact in map(sum, zip(stay, added, strict=True)):
        whole = max(0, round(exact + carried))
        carried += exact - whole
        found.append(whole)
    return found
