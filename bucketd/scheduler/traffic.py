"""What passes through each partition of this node: fires a minute, and how late they were drained. No I/O, no clock.

Counted once a drained batch. The window is whole slots of ten seconds, the last five minutes of them: crons fire at whole minutes,
and a window of another length would see one minute too many or too few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

SLOT_S = 10
SLOTS = 30
WINDOW_S = SLOT_S * SLOTS
BATCHES = 16  # whose lateness is kept a partition


class Load(NamedTuple):
    """Of one partition: fires a minute, the worst lateness of a drain (ms; None: nothing was drained), for how long it was measured."""

    partition: int
    per_min: float
    late_max_ms: int | None
    measured_s: int


@dataclass(slots=True)
class _Passing:
    since_s: float
    fires: dict[int, float] = field(default_factory=dict)  # by slot; those of a former owner are its mean
    late: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=BATCHES))  # (when, ms)

    def per_min(self, now_s: float) -> float:
        """Of the whole slots in the window; before there is one, of what there is."""
        end = int(now_s // SLOT_S)
        begin = max(end - SLOTS, -int(-self.since_s // SLOT_S))
        for old in [slot for slot in self.fires if slot < end - SLOTS]:
            del self.fires[old]
        if begin >= end:
            return sum(self.fires.values()) / max(1.0, now_s - self.since_s) * 60
        fires = sum(count for slot, count in self.fires.items() if begin <= slot < end)
        return fires / ((end - begin) * SLOT_S) * 60


class Traffic:
    """Of one node. `now_s` is monotonic seconds everywhere."""

    def __init__(self) -> None:
        self._passing: dict[int, _Passing] = {}

    def own(self, partitions: Iterable[int], now_s: float) -> None:
        """Begins to measure what is new among these, and forgets the others."""
        self._passing = {p: self._passing.get(p) or _Passing(now_s) for p in partitions}

    def inherit(self, partition: int, per_min: float, measured_s: int, now_s: float) -> None:
        """Goes on with what the former owner measured: a plan that follows a move is not to find an idle partition."""
        end = int(now_s // SLOT_S)
        slots = range(end - min(SLOTS, measured_s // SLOT_S), end)
        since_s = slots.start * SLOT_S if slots else now_s
        self._passing[partition] = _Passing(since_s, dict.fromkeys(slots, per_min * SLOT_S / 60))

    def drained(self, partition: int, fires: int, late_ms: int | None, now_s: float) -> None:
        """Counts a batch. `late_ms`: how long after it was due the first of it left its bucket; None: nobody knows."""
        passing = self._passing.get(partition)
        if passing is None:
            passing = self._passing[partition] = _Passing(now_s)
        slot = int(now_s // SLOT_S)
        passing.fires[slot] = passing.fires.get(slot, 0) + fires
        if late_ms is not None:
            passing.late.append((now_s, late_ms))

    def loads(self, now_s: float) -> list[Load]:
        """Of each partition."""
        return [
            Load(
                partition,
                round(passing.per_min(now_s), 2),
                max(self._late(passing, now_s), default=None),
                int(now_s - passing.since_s),
            )
            for partition, passing in self._passing.items()
        ]

    def lateness(self, now_s: float) -> tuple[int, int] | None:
        """(median, worst) of the last batches, ms; None: nothing was drained in the window."""
        late = [ms for passing in self._passing.values() for ms in self._late(passing, now_s)]
        return (median_low(late), max(late)) if late else None

    @staticmethod
    def _late(passing: _Passing, now_s: float) -> list[int]:
        return [ms for at_s, ms in passing.late if at_s >= now_s - WINDOW_S]
