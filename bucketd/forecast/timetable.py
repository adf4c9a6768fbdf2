"""When the specs fire in a window. Crons with the same minutes share a pattern: specs by the 100,000 have few of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from bucketd.store.forecast import LONGEST_JITTER_S, Asked, AskedMinute, AskedSpec
from bucketd.timing import CronSpec, EverySpec, Spec, fires_between
from bucketd.timing.offsets import DAY_S, offsets_of

HOUR = 60  # minutes; also the longest jitter


class Window(NamedTuple):
    """`minutes` minutes of `due` from `start_s` on, epoch seconds, a whole minute."""

    start_s: int
    minutes: int

    @property
    def end_s(self) -> int:
        """Where it ends."""
        return self.start_s + self.minutes * 60


class Slot(NamedTuple):
    """A cron's nominal minute, counted from the window's start; if the minute field were H, any of [lo, lo + step) instead."""

    minute: int
    lo: int
    step: int


Pattern = tuple[Slot, ...]


class Plain(NamedTuple):
    """An interval, or a one-shot (every_s is None), and a stretch of nominal instants that count, from the window's start."""

    spec_id: int
    every_s: int | None
    from_s: int
    until_s: int


@dataclass(slots=True)
class Timetable:
    """All that fires in a window, by spec. Slots begin `before` minutes ahead of it, for jitter; `after`: for H, and with its choice."""

    window: Window
    before: int = HOUR
    after: int = 0
    patterns: list[Pattern] = field(default_factory=list)
    crons: dict[int, tuple[int, int]] = field(default_factory=dict)  # spec -> (pattern, largest jitter)
    plains: list[Plain] = field(default_factory=list)
    _numbers: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)

    def add(self, spec_id: int, spec: Spec, max_jitter_s: int) -> None:
        """Enters a spec; one that cannot be due in the window is left out."""
        start_s, end_s = self.window.start_s, self.window.end_s
        if not isinstance(spec, CronSpec):
            every_s = spec.every_s if isinstance(spec, EverySpec) else None
            self.plains += [Plain(spec_id, every_s, *stretch) for stretch in _allowed(spec, self.window)]
            return
        fires = fires_between(spec, start_s - self.before * 60, end_s + self.after * 60)
        first = bisect_left(fires, start_s - max_jitter_s)
        if first < len(fires) and fires[first] < end_s:
            self.crons[spec_id] = self._number(spec, tuple(fires)), max_jitter_s

    def asked(self) -> Asked:
        """The question to Postgres: how many schedules do these have?"""
        length_s = self.window.minutes * 60
        fires = [sum(0 <= slot.minute < self.window.minutes for slot in pattern) for pattern in self.patterns]
        crons = [
            AskedSpec(spec_id, number, fires[number], None, -LONGEST_JITTER_S, length_s)
            for spec_id, (number, _) in self.crons.items()
        ]
        plains = [AskedSpec(p.spec_id, None, 0, p.every_s, p.from_s, p.until_s) for p in self.plains]
        return Asked.of(AskedSpec, crons + plains)

    def asked_minutes(self, minutes: Iterable[int]) -> Asked:
        """The question who is due in these minutes of the window."""
        return Asked.of(AskedMinute, [row for peak in enumerate(minutes) for row in self._minute(*peak)])

    def _minute(self, peak: int, minute: int) -> list[AskedMinute]:
        minute_s = self.window.start_s + minute * 60
        near = [[minute - s.minute for s in p if minute - HOUR <= s.minute <= minute] for p in self.patterns]
        crons = [
            AskedMinute(spec_id, peak, minute_s, minute_s - ago * 60, None, 0, minute_s + 60)
            for spec_id, (number, max_jitter_s) in self.crons.items()
            for ago in near[number]
            if ago * 60 <= max_jitter_s
        ]
        start_s = self.window.start_s
        return crons + [
            AskedMinute(p.spec_id, peak, minute_s, None, p.every_s, start_s + p.from_s, start_s + p.until_s)
            for p in self.plains
        ]

    def _number(self, spec: CronSpec, fires: tuple[int, ...]) -> int:
        """The pattern's number, a new one if it is new."""
        step = hash_step(spec.minute) if self.after else None
        backs = tuple((at_s + spec.offsets.at(at_s).offset_s) // 60 % step for at_s in fires) if step else ()
        number = self._numbers.setdefault((fires, backs, (step or 1,)), len(self.patterns))
        if number == len(self.patterns):
            minutes = [(at_s - self.window.start_s) // 60 for at_s in fires]
            pairs = zip(minutes, backs or [0] * len(minutes), strict=True)
            self.patterns.append(tuple(Slot(minute, minute - back, step or 1) for minute, back in pairs))
        return number


def hash_step(minutes: tuple[int, ...]) -> int | None:
    """The n of the H/n that is equal to these minutes but for where it begins (60 is H alone); None: no H is."""
    step = HOUR // len(minutes)
    if step == 1 or step * len(minutes) != HOUR:
        return None
    return step if minutes == tuple(range(minutes[0], HOUR, step)) else None


def _allowed(spec: Spec, window: Window) -> list[tuple[int, int]]:
    """Stretches of nominal time that hold no excluded date, in seconds from the window's start."""
    lo_s, hi_s = window.start_s - LONGEST_JITTER_S, window.end_s
    if not isinstance(spec, EverySpec) or spec.excluded is None:
        return [(-LONGEST_JITTER_S, window.minutes * 60)]
    found = []
    offsets = offsets_of(spec.tz)
    while lo_s < hi_s:
        stretch = offsets.at(lo_s)
        midnight_s = ((lo_s + stretch.offset_s) // DAY_S + 1) * DAY_S - stretch.offset_s
        next_s = min(midnight_s, stretch.hi_s, hi_s)
        if not spec.excluded.holds(lo_s):
            found.append((lo_s - window.start_s, next_s - window.start_s))
        lo_s = next_s
    return found
