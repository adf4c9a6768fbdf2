"""Surveying: the figures of the whole cluster, for monitoring, gathered by one node: who owns partition 0.

Figures of the cluster shown by each node would be as many copies, and as many questions to the stores. If the node dies, the next owner
of the partition goes on; until then nobody shows them, which alerts can ask about (absent).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bucketd.scheduler.cluster import Node
from bucketd.store import survey
from bucketd.store.breakers import OpenBreaker
from bucketd.store.clock import monotonic
from bucketd.store.doctor import Days
from bucketd.store.exposition import Sample
from bucketd.store.metrics import TARGETS
from bucketd.store.survey import Figures, Queue

PARTITION = 0
KEEP_S = 60.0  # older figures are not shown: the stores are away, and nobody knows


@dataclass(frozen=True, slots=True)
class Report:
    """What one survey found, and when by `monotonic()` and by the cluster's clock."""

    figures: Figures
    days: Days
    breakers: list[OpenBreaker]
    queues: list[Queue]
    taken_at: float
    now_s: float


class Surveyor:
    """Surveys while this node owns the partition; `last` is what it saw."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.last: Report | None = None

    async def run_once(self) -> Report | None:
        """One survey; None: it is another node's business. Raises what the stores raise."""
        node = self._node
        if all(partition.id != PARTITION for partition in node.believed()):
            self.last = None
            return None
        async with node.pool.connection() as connection:
            found, days, breakers = await survey.figures(connection, node.settings.runner_dead_after_s)
        queues = await survey.queues(node.redis, node.keys)
        self.last = Report(found, days, breakers, queues, monotonic(), node.clock.now())
        return self.last

    def samples(self) -> Iterator[Sample]:
        """The last survey, unless it is old, or the partition is gone since."""
        report, owned = self.last, self._node.owned.get(PARTITION)
        if report is None or owned is None:
            return
        age_s = monotonic() - report.taken_at
        if age_s > KEEP_S:
            return
        yield Sample("bucketd_survey_age_seconds", age_s)
        yield from _of_figures(report.figures)
        yield Sample("bucketd_days_missing", len(report.days.missing))
        yield Sample("bucketd_days_ahead_seconds", report.days.ahead_s)
        for breaker in report.breakers[:TARGETS]:
            yield Sample("bucketd_breaker_openings", breaker.openings, (breaker.target,))
        yield from _of_queues(report.queues, report.now_s)


def _of_figures(figures: Figures) -> Iterator[Sample]:
    yield Sample("bucketd_oldest_unsettled_seconds", figures.oldest_unsettled_s)
    yield Sample("bucketd_partitions_unowned", figures.partitions_unowned)
    yield Sample("bucketd_runners_alive", figures.runners_alive)
    yield Sample("bucketd_runs_overdue", figures.runs_overdue)
    yield Sample("bucketd_runs_held", figures.runs_held)
    yield Sample("bucketd_backfills_open", figures.backfills_open)
    yield Sample("bucketd_dead_letters", figures.dead_letters)
    yield Sample("bucketd_specs_failed", figures.specs_failed)
    yield Sample("bucketd_holds", figures.holds_of_all, ("all",))
    yield Sample("bucketd_holds", figures.holds_of_tenants, ("tenant",))
    yield Sample("bucketd_holds", figures.holds_of_targets, ("target",))
    yield Sample("bucketd_breakers_open", figures.breakers_open)


def _of_queues(queues: list[Queue], now_s: float) -> Iterator[Sample]:
    for queue in queues:
        labels = (str(queue.shard), "crowd" if queue.crowd else "main")
        yield Sample("bucketd_queue_fires", queue.fires, labels)
        waited_s = 0.0 if queue.since_s is None else max(0.0, now_s - queue.since_s)
        yield Sample("bucketd_queue_oldest_seconds", waited_s, labels)
