"""Whether it happened: the expectation, the target's record and the rows in Postgres, against each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bucketd.demo.deliveries import Delivery
from bucketd.demo.expect import Occurrence
from bucketd.demo.watch import quantile


@dataclass(frozen=True, slots=True)
class Row:
    """A run as Postgres has it."""

    occurrence: Occurrence
    status: str
    attempt: int
    missed: int
    finished_s: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Each offence with its occurrences; the figures beside it. Times in milliseconds."""

    due: int
    delivered: int
    missing: Sequence[Occurrence] = ()
    doubled: Sequence[Occurrence] = ()
    early: Sequence[Occurrence] = ()
    unexpected: Sequence[Occurrence] = ()
    unfinished: Sequence[Occurrence] = ()
    repeated: int = 0
    lateness_ms: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Nothing missing, doubled, early, or delivered that nobody asked for; every row of what was due says succeeded."""
        return not (self.missing or self.doubled or self.early or self.unexpected or self.unfinished)


def judge(
    due: set[Occurrence],
    either_way: set[Occurrence],
    deliveries: Sequence[Delivery],
    rows: Iterable[Row],
    live_from_s: int,
    disturbed_s: tuple[float, float],
) -> Verdict:
    """`either_way`: instants so near to the begin or end of their schedule that both outcomes are right.

    `disturbed_s`: from the kills to the take-over; the lateness of what was due then is told apart.
    """
    by_occurrence = {row.occurrence: row for row in rows}
    seen = {delivery.occurrence for delivery in deliveries}
    live = [delivery for delivery in _first_attempts(deliveries) if delivery.occurrence[2] >= live_from_s]
    calm = [delivery for delivery in live if not disturbed_s[0] <= delivery.occurrence[2] <= disturbed_s[1]]
    return Verdict(
        due=len(due),
        delivered=len(seen & due),
        missing=sorted(due - seen),
        doubled=sorted(_doubled(deliveries, by_occurrence)),
        early=sorted(delivery.occurrence for delivery in deliveries if delivery.lateness_s < 0),
        unexpected=sorted(seen - due - either_way),
        unfinished=sorted(due & seen - {row.occurrence for row in by_occurrence.values() if row.status == "succeeded"}),
        repeated=sum(delivery.attempt > 1 for delivery in deliveries),
        lateness_ms={"all": _lateness(live), "calm": _lateness(calm)},
    )


def _doubled(deliveries: Sequence[Delivery], rows: Mapping[Occurrence, Row]) -> set[Occurrence]:
    """Two calls with one attempt number, or a call that began after the run's success was written."""
    calls = Counter((delivery.run_id, delivery.attempt, delivery.occurrence) for delivery in deliveries)
    twice = {occurrence for (_, _, occurrence), count in calls.items() if count > 1}
    ids: dict[Occurrence, set[str]] = defaultdict(set)
    for delivery in deliveries:
        ids[delivery.occurrence].add(delivery.run_id)
    return (
        twice
        | {occurrence for occurrence, found in ids.items() if len(found) > 1}
        | set(_after_success(deliveries, rows))
    )


def _after_success(deliveries: Sequence[Delivery], rows: Mapping[Occurrence, Row]) -> Iterable[Occurrence]:
    for delivery in deliveries:
        row = rows.get(delivery.occurrence)
        if row and row.status == "succeeded" and row.finished_s is not None and delivery.arrived_s > row.finished_s:
            yield delivery.occurrence


def _first_attempts(deliveries: Iterable[Delivery]) -> list[Delivery]:
    found: dict[Occurrence, Delivery] = {}
    for delivery in deliveries:
        found.setdefault(delivery.occurrence, delivery)
    return list(found.values())


def _lateness(deliveries: Sequence[Delivery]) -> tuple[float | None, float | None]:
    ascending = sorted(delivery.lateness_s * 1000 for delivery in deliveries)
    return quantile(ascending, 0.50), quantile(ascending, 0.99)
