"""Which schedules of a spec other data of its zone move, and where. No I/O, no clock."""

from __future__ import annotations

from math import ceil

from bucketd.store.tzdata import Timed
from bucketd.timing import CronSpec, Spec, TimingError, fires_between, load_rule
from bucketd.timing.shifts import Move, ZoneShift

AHEAD_S = 400 * 86_400  # later fires are computed when their time comes, by whatever data are pinned then


class SpecMoves:
    """One spec of the zone of `shift`. `now_s`: the first second that may move."""

    def __init__(self, shift: ZoneShift, spec: Spec, now_s: int) -> None:
        self._shift, self._spec, self._now_s = shift, spec, now_s
        self._old = shift.by_old(spec)
        self._known: dict[tuple[int, int], Move | None] = {}

    @property
    def differed_lately(self) -> bool:
        """Whether fires before now may be others by the old data."""
        return self._shift.differs_in(self._shift.start_s, self._now_s)

    def possible(self) -> bool:
        """False: no schedule of this spec moves."""
        if isinstance(self._spec, CronSpec):
            return self._first(0, self._now_s) is not None
        return bool(self._shift.slices(self._spec))

    def of(self, schedule: Timed) -> Move | None:
        """The first fire of the schedule that moves, within its bounds; None: none does."""
        phase = 0 if isinstance(self._spec, CronSpec) else schedule.phase
        from_s = max(self._now_s, ceil(schedule.starts_s or 0))
        move = self._first(phase, self._now_s)
        if move is not None and move.at_s < from_s:
            move = self._first(phase, from_s)
        return None if move is None or move.at_s >= (schedule.ends_s or float("inf")) else move

    def old_fires(self, start_s: int, end_s: int, phase: int) -> list[int]:
        """Fires of [start_s, end_s) by the old data."""
        return fires_between(self._old, start_s, end_s, phase)

    def _first(self, phase: int, from_s: int) -> Move | None:
        if (phase, from_s) not in self._known:
            self._known[phase, from_s] = self._shift.first_move(self._spec, phase, from_s)
        return self._known[phase, from_s]


def read(rule: str) -> Spec | None:
    """The spec of a rule; None for one that cannot be read: its schedules do not fire, so none of them moves."""
    try:
        return load_rule(rule)
    except TimingError:
        return None
