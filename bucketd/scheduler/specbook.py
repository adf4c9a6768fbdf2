"""The specs a node knows, and which of them fire when: each is computed once a fire, however many schedules share it.

A spec that cannot be read or computed is set aside with its error, and the others go on (its schedules have no occurrences
meanwhile). The planner writes to Postgres what `errors` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from bucketd.scheduler.agenda import Agenda, Trail, check_instants
from bucketd.scheduler.due import DueSpecs, Instant, RangeDue, WholeDue
from bucketd.store.feed import SpecRow
from bucketd.timing import CronSpec, EverySpec, Spec, count_between, fires_between, load_rule, next_fire, previous_fire

ERROR_CHARACTERS = 500
EVERY_MAX_S = 2**31 - 1  # of the column `every_s`
Answer = TypeVar("Answer")


class SpecBook:
    """All specs by id. Not thread-safe; no I/O. No method raises for a spec that fails: it is set aside."""

    def __init__(self) -> None:
        self._specs: dict[int, Spec] = {}
        self._errors: dict[int, str] = {}  # of the specs that are set aside
        self._agenda = Agenda(self.set_aside)
        self._trails: dict[int, Trail] = {}  # of crons with jitter
        self._jitter: dict[int, int] = {}  # spec -> largest jitter, where above 0
        self._ranged: dict[int, None] = {}  # intervals, one-shots, crons with jitter, in order of arrival

    def __len__(self) -> int:
        return len(self._specs)

    def spec(self, spec_id: int) -> Spec | None:
        """The spec of that id, if it is known by now and not set aside."""
        return self._specs.get(spec_id)

    @property
    def errors(self) -> dict[int, str]:
        """What is set aside, and why: kind and message of the error, at most 500 characters."""
        return self._errors

    def set_aside(self, spec_id: int, error: Exception) -> None:
        """Takes a spec out that cannot be computed, until its row is learned again or the process ends."""
        self._errors[spec_id] = f"{type(error).__name__}: {error}".strip().replace("\0", "")[:ERROR_CHARACTERS]
        self._agenda.drop(spec_id)
        for part in (self._specs, self._trails, self._jitter, self._ranged):
            part.pop(spec_id, None)

    def learn(self, rows: Iterable[SpecRow]) -> None:
        """Adds specs, or the jitter that one has got. One that was set aside gets another chance."""
        for row in rows:
            known = self._specs.get(row.spec_id)
            try:
                spec = known or _read(row)
            except Exception as error:
                self.set_aside(row.spec_id, error)
                continue
            self._errors.pop(row.spec_id, None)
            self._specs[row.spec_id] = spec
            if row.max_jitter_s:
                self._jitter[row.spec_id] = row.max_jitter_s
            if row.max_jitter_s or not isinstance(spec, CronSpec):
                self._agenda.drop(row.spec_id)
                self._ranged[row.spec_id] = None
            elif known is None:
                self._agenda.enter(row.spec_id, spec)

    def due(self, start_s: int, end_s: int) -> DueSpecs:
        """Specs with an occurrence due in [start_s, end_s)."""
        whole = [
            due
            for minute in range(start_s // 60, (end_s + 59) // 60)
            for due in self._agenda.minute(minute)
            if start_s <= due.at_s < end_s
        ]
        ranges = [due for spec_id in list(self._ranged) for due in self._range(spec_id, start_s, end_s)]
        return DueSpecs(start_s, end_s, whole, ranges)

    def instants(self, due: RangeDue, due_phase: int, jitter_offset_s: int, window: DueSpecs) -> list[Instant]:
        """Occurrences in the window of a schedule that was found by its due phase."""
        if due.cron is not None:
            cron = due.cron
            return [Instant(cron.at_s + jitter_offset_s, cron.at_s, cron.previous_s, cron.next_s)]
        spec = self._specs.get(due.spec_id)
        if spec is None:
            return []  # set aside since
        if isinstance(spec, EverySpec):
            if spec.excluded is not None:
                phase = (due_phase - jitter_offset_s) % spec.every_s
                return self.occurrences(due.spec_id, phase, jitter_offset_s, window.start_s, window.end_s)
            first = window.start_s + (due_phase - window.start_s) % spec.every_s
            return [
                Instant(at, at - jitter_offset_s, spec.every_s, spec.every_s)
                for at in range(first, window.end_s, spec.every_s)
            ]
        return [Instant(due_phase, due_phase - jitter_offset_s, None, None)]

    def leaves_out(self, spec_id: int, at_s: int) -> bool:
        """Whether an interval's instant lies on one of its excluded dates, which SQL does not know."""
        spec = self._specs.get(spec_id)
        return isinstance(spec, EverySpec) and spec.excluded is not None and spec.excluded.holds(at_s)

    def occurrences(self, spec_id: int, phase: int, jitter_offset_s: int, start_s: int, end_s: int) -> list[Instant]:
        """Occurrences of one schedule that are due in [start_s, end_s)."""
        found = []
        for at in self.fires(spec_id, start_s - jitter_offset_s, end_s - jitter_offset_s, phase):
            earlier, later = self.previous(spec_id, at, phase), self.next(spec_id, at, phase)
            before_s = None if earlier is None else at - earlier
            found.append(Instant(at + jitter_offset_s, at, before_s, None if later is None else later - at))
        return found if spec_id in self._specs else []

    def fires(self, spec_id: int, start_s: int, end_s: int, phase: int, limit: int | None = None) -> list[int]:
        """`fires_between` of a spec; nothing for one that is not known."""

        def ask(spec: Spec) -> list[int]:
            ats = fires_between(spec, start_s, end_s, phase, limit)
            check_instants(ats)
            return ats

        return self._asked(spec_id, ask, [])

    def count(self, spec_id: int, start_s: int, end_s: int, phase: int) -> int:
        """`count_between` of a spec; 0 for one that is not known."""
        return self._asked(spec_id, lambda spec: count_between(spec, start_s, end_s, phase), 0)

    def previous(self, spec_id: int, before_s: int, phase: int) -> int | None:
        """`previous_fire` of a spec; None also for one that is not known."""

        def ask(spec: Spec) -> int | None:
            check_instants((at := previous_fire(spec, before_s, phase),))
            return at

        return self._asked(spec_id, ask, None)

    def next(self, spec_id: int, after_s: int, phase: int) -> int | None:
        """`next_fire` of a spec; None also for one that is not known."""

        def ask(spec: Spec) -> int | None:
            check_instants((at := next_fire(spec, after_s, phase),))
            return at

        return self._asked(spec_id, ask, None)

    def _asked(self, spec_id: int, ask: Callable[[Spec], Answer], otherwise: Answer) -> Answer:
        spec = self._specs.get(spec_id)
        if spec is None:
            return otherwise
        try:
            return ask(spec)
        except Exception as error:
            self.set_aside(spec_id, error)
            return otherwise

    def _range(self, spec_id: int, start_s: int, end_s: int) -> list[RangeDue]:
        spec = self._specs[spec_id]
        if isinstance(spec, CronSpec):
            try:
                fires = self._trail(spec_id, spec).between(start_s - self._jitter[spec_id], end_s)
            except Exception as error:
                self.set_aside(spec_id, error)
                return []
            return [RangeDue(spec_id, max(start_s - due.at_s, 0), end_s - due.at_s, due) for due in fires]
        if not isinstance(spec, EverySpec):
            return [RangeDue(spec_id, start_s, end_s, None)]
        every_s = spec.every_s
        if every_s <= end_s - start_s:
            return [RangeDue(spec_id, 0, every_s, None)]
        lo = start_s % every_s
        hi = lo + end_s - start_s
        wrapped = [RangeDue(spec_id, 0, hi - every_s, None)] if hi > every_s else []
        return [RangeDue(spec_id, lo, min(hi, every_s), None), *wrapped]

    def _trail(self, spec_id: int, spec: CronSpec) -> Trail:
        trail = self._trails.get(spec_id)
        if trail is None:
            trail = self._trails[spec_id] = Trail(spec_id, spec)
        return trail


def _read(row: SpecRow) -> Spec:
    """The spec of a row, which other hands may have written. Raises whatever is wrong with it."""
    spec = load_rule(row.rule)
    if spec.kind != row.kind:
        raise ValueError(f"expected a rule of kind {row.kind}, got one of kind {spec.kind}")
    if isinstance(spec, EverySpec) and spec.every_s > EVERY_MAX_S:
        raise ValueError(f"expected an interval of at most {EVERY_MAX_S} s, got {spec.every_s}")
    return spec


__all__ = ["DueSpecs", "Instant", "RangeDue", "SpecBook", "WholeDue"]
