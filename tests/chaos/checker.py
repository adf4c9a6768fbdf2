"""The verdict on a play: what it left behind against what the oracle expects. Pure; see tests/support/invariants.py for I1 to I4 and I7.

Each complaint says which invariant it is about; `Verdict` sorts them into lost, doubled, early and the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.chaos.oracle import Expected
from tests.chaos.watch import Look
from tests.support import invariants
from tests.support.edit_model import NEVER, Span
from tests.support.evidence import Call, Evidence, Key, Row

STATEMENT_S = 5.5  # a statement that began before a write was acknowledged ends by then (statement time-out, and the clock's read)
ANSWERED_S = 11.0  # from a call to its result: the targets' time-out, and the statement
CALM_S = 0.5  # a result is written, and a call begun, within this on a machine that is busy with everything else
COUNTS = ("skip", "run_once")  # policies that may count occurrences in place of running them


@dataclass(frozen=True)
class Facts:
    """Everything there is to judge by. `troubled`: from the injection of each fault to when its recovery is bound to be over."""

    expected: Mapping[Key, Expected]
    rows: Sequence[Row]
    calls: Sequence[Call]
    looks: Sequence[Look]
    troubled: Sequence[Span]
    until_s: int
    lost_commits: Sequence[Span] = ()


@dataclass
class Verdict:
    """Complaints by kind; none is the good answer."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        """All of them."""
        return [*self.lost, *self.doubled, *self.early, *self.others]

    def add(self, complaint: str) -> None:
        """Sorts it by its first words."""
        kinds = {"I3 ": self.lost, "I4 ": self.early, "doubled": self.doubled, "I1 called": self.doubled}
        ghost = complaint.startswith("I3 a row that nobody asked for")
        kind = next((kind for head, kind in kinds.items() if complaint.startswith(head)), self.others)
        (self.others if ghost else kind).append(complaint)


def judge(facts: Facts) -> Verdict:
    """All checks."""
    verdict = Verdict()
    one_history = in_one_history(facts)
    evidence = as_evidence(one_history)
    for check in (
        invariants.one_row_a_run,
        invariants.attempts_without_gap,
        invariants.nothing_lost,
        invariants.nothing_early,
        invariants.nobody_forgotten,
        invariants.nothing_after_success,
    ):
        for complaint in check(evidence):
            verdict.add(complaint)
    for more in (
        counted_where_due, every_slot_of_catch_up, not_missed_in_peace, no_attempt_missing, nothing_met, nothing_after_the_end,
        triggers, watermarks, due_as_planned,
    ):  # fmt: skip
        for complaint in more(one_history):
            verdict.add(complaint)
    return verdict


def as_evidence(facts: Facts) -> Evidence:
    """As tests/support/invariants.py takes it."""
    due = {key: set(one.sure) for key, one in facts.expected.items()}
    either = {key: set(one.either) for key, one in facts.expected.items()}
    rows = [row for row in facts.rows if row.at + row.jitter_s < facts.until_s or row.origin == "trigger"]
    known = {(row.key, row.at) for row in facts.rows}
    judged = {(row.key, row.at) for row in rows}
    # A call of a run that is due after the end is not judged; one without any row is.
    calls = [call for call in facts.calls if (call.key, call.at) in judged or (call.key, call.at) not in known]
    return Evidence(due, rows, calls, either)


def in_one_history(facts: Facts) -> Facts:
    """A failover that loses commits begins another history of the database: what was called in the lost piece of the old one may be
    called once more, under any number, and so may what had its result written there. Of such calls only those are evidence that are
    the last attempt of their rows."""
    if not facts.lost_commits:
        return facts
    attempts = {(row.key, row.at): row.attempt for row in facts.rows}
    to_come: dict[str, int] = {}  # lowest attempt of the later calls of a run
    kept = []
    for call in reversed(facts.calls):
        again = to_come.get(call.run_id, call.attempt + 1) <= call.attempt
        other = call.attempt != attempts.get((call.key, call.at), 0)
        unanswered = again and _lost(facts, call.arrived, call.arrived + ANSWERED_S)
        if not (unanswered or (other and _lost(facts, call.arrived, call.arrived))):
            kept.append(call)
        to_come[call.run_id] = min(call.attempt, to_come.get(call.run_id, call.attempt))
    return replace(facts, calls=kept[::-1])


def counted_where_due(facts: Facts) -> Iterator[str]:
    """A row counts only what is older than itself and has no row: no prefix of a schedule's life counts more than it lacks."""
    for key, rows in _by_key(facts).items():
        one = facts.expected.get(key)
        if one is None or not any(row.missed for row in rows):
            continue
        have = {row.at for row in rows}
        lacking = sorted((one.sure | one.either) - have)
        counted = 0
        for row in rows:
            counted += row.missed
            if counted > bisect_right(lacking, row.at):
                yield f"I3 {counted} counted up to {row.at}, but {bisect_right(lacking, row.at)} lack a row: {key}"
                break


def every_slot_of_catch_up(facts: Facts) -> Iterator[str]:
    """catch_up: all of them run, none is only counted (no play is as long as a day)."""
    for key, rows in _by_key(facts).items():
        one = facts.expected.get(key)
        if one is not None and one.misfire not in COUNTS and "deadline_s" not in one.life.options:
            yield from (f"I3 {row.missed} counted where all catch up: {row}" for row in rows if row.missed)


def not_missed_in_peace(facts: Facts) -> Iterator[str]:
    """An occurrence is counted or skipped as missed only if something was wrong when it was due."""
    for key, rows in _by_key(facts).items():
        one = facts.expected.get(key)
        if one is None:
            continue
        have = {row.at for row in rows}
        missed = [at for at in one.sure if at not in have]
        missed += [row.at for row in rows if row.reason in ("misfire", "past_deadline") and row.at in one.sure]
        for at in missed:
            due_s = one.due_s.get(at, at)
            if not _troubled(facts, due_s, due_s + 1):
                yield f"I3 missed, though nothing was wrong at {due_s}: {key} at {at}"


def no_attempt_missing(facts: Facts) -> Iterator[str]:
    """I2: each attempt was called or has its failure recorded, but what was lost while something was wrong."""
    called: defaultdict[tuple[Key, float], set[int]] = defaultdict(set)
    for call in facts.calls:
        called[call.key, call.at].add(call.attempt)
    for row in facts.rows:
        missing = {*range(1, row.attempt + 1)} - called[row.key, row.at] - {*row.errors}
        if missing and row.status in invariants.FINAL:
            begin_s, end_s = row.at + row.jitter_s, row.finished or facts.until_s
            if not _troubled(facts, begin_s, end_s):
                yield f"I2 attempts {sorted(missing)} neither called nor recorded, though nothing was wrong: {row}"


def nothing_met(facts: Facts) -> Iterator[str]:
    """I10: of a schedule whose runs must not overlap none is called before the end of the one before is written. (Not: started. A start
    is when its statement began, which may then have waited for the slot, or cancelled who had it.)"""
    called: dict[tuple[Key, float], float] = {}
    for call in facts.calls:
        called.setdefault((call.key, call.at), call.arrived)
    for key, rows in _by_key(facts).items():
        one = facts.expected.get(key)
        if one is None or one.overlap == "allow":
            continue
        begun = [
            # One that is cancelled between its commit and its call may still be called: it is broken off.
            (min(called[key, row.at], row.finished or facts.until_s), row.finished or facts.until_s, row)
            for row in rows
            if (key, row.at) in called
        ]
        begun.sort(key=lambda one: one[:2])
        for (_, end_s, before), (begin_s, _, after) in pairwise(begun):
            if begin_s < end_s:
                yield f"I10 {one.overlap}: called {end_s - begin_s:.6f} s before the end of {before}: {after}"


def nothing_after_the_end(facts: Facts) -> Iterator[str]:
    """I5: no first attempt starts while a pause stands that was acknowledged, nor after a delete."""
    for key, rows in _by_key(facts).items():
        one = facts.expected.get(key)
        if one is None:
            continue
        history = one.life.history
        ends = [(pause.end_s, resume.begin_s) for pause, resume in history.pauses]
        if history.deleted is not NEVER:
            ends.append((history.deleted.end_s, float("inf")))
        for row in rows:
            for end_s, again_s in ends:
                if (
                    row.attempt == 1
                    and row.started
                    and end_s + STATEMENT_S < row.started < again_s
                    and row.reason != "runner_lost"
                ):
                    yield f"I5 started {row.started - end_s:.3f} s after a pause or delete was acknowledged: {row}"


def triggers(facts: Facts) -> Iterator[str]:
    """Each trigger that was acknowledged made a run; none came of nothing."""
    made = {key: sum(row.origin == "trigger" for row in rows) for key, rows in _by_key(facts, all_of=True).items()}
    for key, one in facts.expected.items():
        least, most = one.life.triggered, one.life.triggers_sent
        if not least <= made.get(key, 0) <= most:
            yield f"I3 {made.get(key, 0)} triggered runs, expected {least} to {most}: {key}"


def watermarks(facts: Facts) -> Iterator[str]:
    """I8 and I9: neither watermark nor epoch goes back, and what is said to be settled is accounted for."""
    due = _due_by_partition(facts)
    for before, look in zip([None, *facts.looks], facts.looks, strict=False):
        if before is not None and not _lost(facts, before.began_s, look.ended_s):
            yield from _went_back(before, look)
        for partition, mark in enumerate(look.marks):
            wanted = bisect_right(due[partition], min(mark.settled_s, facts.until_s - 1))
            if mark.accounted < wanted:
                yield (
                    f"I8 partition {partition} says settled through {mark.settled_s}:"
                    f" {wanted} were due, {mark.accounted} are accounted for"
                )


def _went_back(before: Look, look: Look) -> Iterator[str]:
    for partition, (old, mark) in enumerate(zip(before.marks, look.marks, strict=True)):
        if mark.epoch < old.epoch:
            yield f"I9 the epoch of partition {partition} went back from {old.epoch} to {mark.epoch}"
        if mark.settled_s < old.settled_s:
            yield f"I8 partition {partition} was settled through {old.settled_s}, then through {mark.settled_s}"


def due_as_planned(facts: Facts) -> Iterator[str]:
    """A row has the jitter of the timing that held at its instant."""
    for row in facts.rows:
        one = facts.expected.get(row.key)
        due_s = one.due_s.get(row.at) if one is not None and row.origin != "trigger" else None
        if due_s is not None and due_s != row.at + row.jitter_s:
            yield f"due at {row.at + row.jitter_s}, expected {due_s}: {row}"


def _due_by_partition(facts: Facts) -> defaultdict[int, list[float]]:
    """Due instants of what is certain, by partition, ascending."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for one in facts.expected.values():
        found[one.partition] += [one.due_s[at] for at in one.sure if at in one.due_s]
    for instants in found.values():
        instants.sort()
    return found


def _by_key(facts: Facts, *, all_of: bool = False) -> dict[Key, list[Row]]:
    """Rows of each schedule by instant; without triggered ones and those that are due after the end, unless `all_of`."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in facts.rows:
        if all_of or (row.origin != "trigger" and row.at + row.jitter_s < facts.until_s):
            found[row.key].append(row)
    return found


def _troubled(facts: Facts, begin_s: float, end_s: float) -> bool:
    return any(span.begin_s - CALM_S <= end_s and begin_s <= span.end_s for span in facts.troubled)


def _lost(facts: Facts, begin_s: float, end_s: float) -> bool:
    return any(span.begin_s <= end_s and begin_s <= span.end_s for span in facts.lost_commits)
