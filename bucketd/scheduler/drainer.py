"""Step 2 of 5: bucket -> queue. One script a partition that is due, all of them in one pipeline.

Keeps I4 (the score is compared with a clock that never runs ahead of Postgres's) and I12 (a full queue stops the drain; what is due
stays in its bucket). If the process dies halfway, a fire is in the bucket or in the queue or in both, never in neither; both is
absorbed by the key of `runs`. The script gives the next due time, so an idle node sleeps until then.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.ownership import LOOK_BACK_S, Ownership
from bucketd.scheduler.partition import Partition
from bucketd.store import buckets
from bucketd.store.buckets import BucketId, Drained, FenceState
from bucketd.store.clock import monotonic
from bucketd.store.failpoint import reach

SCRIPTS = 64  # a pipeline: bounds how long Redis and this loop are held
FULL_PAUSE_S = 0.05  # between looks at a full queue
IDLE_PAUSE_S = 2.0  # between looks without any bucket in sight


@dataclass(frozen=True, slots=True)
class Report:
    """What one round moved, how many buckets expired undrained, whether a queue was full (or silent), and when the next fire is due."""

    fires: int
    scripts: int
    expired: int
    queue_full: bool
    next_due_s: float | None


class Drainer:
    """Drains what this node owns and is due."""

    def __init__(self, node: Node, ownership: Ownership) -> None:
        self._node = node
        self._ownership = ownership

    async def run_once(self) -> Report:
        """Drains each due bucket once, at most a batch of each. Raises what Redis raises; nothing is lost by a repeat."""
        node = self._node
        believed = node.believed()
        expired = await self._expire(believed)
        now_ms = int(node.clock.now() * 1000)
        due = sorted(
            ((p, id) for p in believed for id, bucket in p.buckets.items() if bucket.due_ms <= now_ms),
            key=lambda pair: (pair[1].crowd, pair[1].minute),
        )
        fires, full = 0, False
        for start in range(0, len(due), SCRIPTS):
            moved, was_full = await self._drain(due[start : start + SCRIPTS], now_ms)
            fires += moved
            full = full or was_full
        node.count("drained", fires)
        node.count("buckets_expired", expired)
        node.count("queue_full", int(full))
        # Not of partitions whose lease has run out: while the stores are away nobody takes them off, and what is due there is not ours.
        buckets_left = (bucket.due_ms for p in believed for bucket in p.buckets.values())
        waiting = [due_ms for due_ms in buckets_left if due_ms > now_ms or not full]
        return Report(fires, len(due), expired, full, min(waiting) / 1000 if waiting else None)

    def pause_s(self, report: Report) -> float:
        """How long to sleep after a round: until the next fire is due, or a little where a queue is full."""
        longest = FULL_PAUSE_S if report.queue_full else IDLE_PAUSE_S
        if report.next_due_s is None:
            return longest
        return min(max(report.next_due_s - self._node.clock.now(), 0.0), longest)

    async def _drain(self, due: list[tuple[Partition, BucketId]], now_ms: int) -> tuple[int, bool]:
        node, settings = self._node, self._node.settings
        writes = [p.buckets[id].writes for p, id in due]
        results = await buckets.drain(
            node.redis,
            node.keys,
            [(p.fence(), id) for p, id in due],
            now_ms,
            batch=settings.drain_batch,
            queue_cap=settings.queue_cap,
            compare=node.compare,
            version=node.message_version,
        )
        reach("after_drain")
        full = False
        for (partition, id), seen, drained in zip(due, writes, results, strict=True):
            self._measure(partition, id, drained, now_ms)
            self._note(partition, id, seen, drained)
            full = full or drained.queue_fires >= settings.queue_cap or drained.state is FenceState.UNKNOWN
        # guard: watermark: what left its bucket may still come to no row, so settling alone moves settled_through
        return sum(drained.fires for drained in results), full

    def _note(self, partition: Partition, id: BucketId, seen: int, drained: Drained) -> None:
        if drained.state is FenceState.ZOMBIE:
            self._ownership.forfeit(partition)
        elif drained.state is FenceState.LOST:
            self._ownership.suspect(partition)
            partition.buckets.pop(id, None)  # planned again under the next epoch
        elif drained.state is FenceState.UNKNOWN:
            pass  # it may have been done: the next round sees
        elif drained.next_due_ms is not None:
            bucket = partition.buckets[id]
            bucket.exact = bucket.writes == seen
            if bucket.exact:
                bucket.due_ms = drained.next_due_ms
        elif partition.buckets[id].writes == seen:
            del partition.buckets[id]
        else:  # written since the drain looked; the next round looks again
            partition.buckets[id].exact = False

    def _measure(self, partition: Partition, id: BucketId, drained: Drained, now_ms: int) -> None:
        if drained.fires:
            bucket = partition.buckets[id]
            late_ms = now_ms - bucket.due_ms if bucket.exact else None
            self._node.traffic.drained(partition.id, drained.fires, late_ms, monotonic())

    async def _expire(self, believed: list[Partition]) -> int:
        """A bucket two minutes past its minute is deleted undrained: settling judges what was in it."""
        oldest = int(self._node.clock.now() - LOOK_BACK_S) // 60
        old = [(p, id) for p in believed for id in p.buckets if id.minute < oldest]
        if old:
            await buckets.delete(self._node.redis, self._node.keys, [id for _, id in old])
            for partition, id in old:
                partition.buckets.pop(id, None)
        return len(old)
