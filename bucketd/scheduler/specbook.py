"""The specs a node knows, and which of them fire when: each spec is computed once a minute, however many schedules share it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from bucketd.store.feed import SpecRow
from bucketd.store.log import warn
from bucketd.store.plan import PhaseRange
from bucketd.timing import AtSpec, CronSpec, EverySpec, Spec, fires_between, load_rule, next_fire, previous_fire

KEPT_MINUTES = 10  # of computed crons: a horizon, and the five minutes that settling may look back


@dataclass(frozen=True, slots=True)
class Instant:
    """An occurrence: when it is due, its nominal instant, and the distance to its neighbours (None: there is none)."""

    due_s: int
    at_s: int
    previous_s: int | None
    next_s: int | None


@dataclass(frozen=True, slots=True)
class WholeDue:
    """A cron without jitter that fires at `at_s`: every schedule of it is due then."""

    spec_id: int
    at_s: int
    previous_s: int | None
    next_s: int | None


@dataclass(frozen=True, slots=True)
class RangeDue:
    """A spec of which the schedules with a due phase in [lo, hi) are due in the window. `cron`: the one instant meant."""

    spec_id: int
    lo: int
    hi: int
    cron: WholeDue | None

    @property
    def phases(self) -> PhaseRange:
        """The question to the planner's index."""
        return PhaseRange(self.spec_id, self.lo, self.hi)


@dataclass(frozen=True, slots=True)
class DueSpecs:
    """What fires in a window [start_s, end_s) of due."""

    start_s: int
    end_s: int
    whole: list[WholeDue]
    ranges: list[RangeDue]


class SpecBook:
    """All specs by id. Not thread-safe; no I/O."""

    def __init__(self) -> None:
        self._specs: dict[int, Spec] = {}
        self._jitter: dict[int, int] = {}  # spec -> largest jitter, where above 0
        self._ranged: dict[int, None] = {}  # intervals, one-shots, crons with jitter, in order of arrival
        self._heap: list[tuple[int, int]] = []  # (next fire, spec) of crons without jitter, at or after the front
        self._front: int | None = None  # minutes below have left the heap
        self._minutes: dict[int, list[WholeDue]] = {}

    def __len__(self) -> int:
        return len(self._specs)

    def spec(self, spec_id: int) -> Spec | None:
        """The spec of that id, if it is known by now."""
        return self._specs.get(spec_id)

    def learn(self, rows: Iterable[SpecRow]) -> None:
        """Adds specs, or the jitter that one has got. A rule that cannot be read is left out and logged: the rest go on."""
        for row in rows:
            try:
                spec = self._specs.get(row.spec_id) or load_rule(row.rule)
            except (ValueError, KeyError, TypeError) as error:
                warn("spec_unreadable", spec=row.spec_id, error=error)
                continue
            known = row.spec_id in self._specs
            self._specs[row.spec_id] = spec
            if row.max_jitter_s:
                self._jitter[row.spec_id] = row.max_jitter_s
            if row.max_jitter_s or not isinstance(spec, CronSpec):
                self._ranged[row.spec_id] = None
            elif not known and self._front is not None:
                self._enter(row.spec_id, spec, self._front)

    def due(self, start_s: int, end_s: int) -> DueSpecs:
        """Specs with an occurrence due in [start_s, end_s)."""
        whole = [
            due
            for minute in range(start_s // 60, (end_s + 59) // 60)
            for due in self._crons(minute)
            if start_s <= due.at_s < end_s and due.spec_id not in self._jitter
        ]
        ranges = [due for spec_id in self._ranged for due in self._range(spec_id, start_s, end_s)]
        return DueSpecs(start_s, end_s, whole, ranges)

    def instants(self, due: RangeDue, due_phase: int, jitter_offset_s: int, window: DueSpecs) -> list[Instant]:
        """Occurrences in the window of a schedule that was found by its due phase."""
        if due.cron is not None:
            cron = due.cron
            return [Instant(cron.at_s + jitter_offset_s, cron.at_s, cron.previous_s, cron.next_s)]
        spec = self._specs[due.spec_id]
        if isinstance(spec, EverySpec):
            first = window.start_s + (due_phase - window.start_s) % spec.every_s
            return [
                Instant(at, at - jitter_offset_s, spec.every_s, spec.every_s)
                for at in range(first, window.end_s, spec.every_s)
            ]
        return [Instant(due_phase, due_phase - jitter_offset_s, None, None)]

    def occurrences(self, spec_id: int, phase: int, jitter_offset_s: int, start_s: int, end_s: int) -> list[Instant]:
        """Occurrences of one schedule that are due in [start_s, end_s)."""
        spec = self._specs.get(spec_id)
        if spec is None:
            return []
        ats = fires_between(spec, start_s - jitter_offset_s, end_s - jitter_offset_s, phase)
        return [Instant(at + jitter_offset_s, at, *_neighbours(spec, at, phase)) for at in ats]

    def _range(self, spec_id: int, start_s: int, end_s: int) -> list[RangeDue]:
        spec = self._specs[spec_id]
        if isinstance(spec, AtSpec):
            return [RangeDue(spec_id, start_s, end_s, None)]
        if isinstance(spec, EverySpec):
            if spec.every_s <= end_s - start_s:
                return [RangeDue(spec_id, 0, spec.every_s, None)]
            lo = start_s % spec.every_s
            hi = lo + end_s - start_s
            wrapped = [RangeDue(spec_id, 0, hi - spec.every_s, None)] if hi > spec.every_s else []
            return [RangeDue(spec_id, lo, min(hi, spec.every_s), None), *wrapped]
        jitter_s = self._jitter[spec_id]
        return [
            RangeDue(spec_id, max(start_s - at, 0), end_s - at, WholeDue(spec_id, at, *_neighbours(spec, at)))
            for at in fires_between(spec, start_s - jitter_s, end_s)
        ]

    def _crons(self, minute: int) -> list[WholeDue]:
        if self._front is None or minute > self._front + KEPT_MINUTES:
            self._restart(minute)
        assert self._front is not None
        while self._front <= minute:
            self._advance()
        if minute not in self._minutes:  # before the first minute ever asked for: rare, computed whole
            self._minutes[minute] = [
                WholeDue(spec_id, at, *_neighbours(spec, at))
                for spec_id, spec in self._specs.items()
                if isinstance(spec, CronSpec) and spec_id not in self._jitter
                for at in fires_between(spec, minute * 60, minute * 60 + 60)
            ]
        return self._minutes[minute]

    def _restart(self, minute: int) -> None:
        self._heap = []
        self._minutes = {}
        self._front = minute
        for spec_id, spec in self._specs.items():
            if isinstance(spec, CronSpec) and spec_id not in self._jitter:
                self._enter(spec_id, spec, minute)

    def _enter(self, spec_id: int, spec: CronSpec, front: int) -> None:
        for minute, found in self._minutes.items():  # minutes that were computed without this spec
            found += [
                WholeDue(spec_id, at, *_neighbours(spec, at))
                for at in fires_between(spec, minute * 60, minute * 60 + 60)
            ]
        at = next_fire(spec, front * 60 - 1)
        if at is not None:
            heapq.heappush(self._heap, (at, spec_id))

    def _advance(self) -> None:
        assert self._front is not None
        minute, end_s = self._front, self._front * 60 + 60
        found: list[WholeDue] = []
        while self._heap and self._heap[0][0] < end_s:
            at, spec_id = self._heap[0]
            spec = self._specs[spec_id]
            following = next_fire(spec, at)
            if following is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (following, spec_id))
            if spec_id not in self._jitter:
                earlier = previous_fire(spec, at)
                found.append(
                    WholeDue(
                        spec_id,
                        at,
                        None if earlier is None else at - earlier,
                        None if following is None else following - at,
                    )
                )
        self._minutes[minute] = found
        self._front = minute + 1
        for old in [kept for kept in self._minutes if kept <= minute - KEPT_MINUTES]:
            del self._minutes[old]


def _neighbours(spec: Spec, at_s: int, phase: int = 0) -> tuple[int | None, int | None]:
    earlier, later = previous_fire(spec, at_s, phase), next_fire(spec, at_s, phase)
    return None if earlier is None else at_s - earlier, None if later is None else later - at_s
