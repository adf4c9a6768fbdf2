"""A partition as its owner knows it: the fence it writes under, what it has planned, which buckets still hold fires."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketd.store.backlog import Ends
from bucketd.store.buckets import BucketId, Fence


@dataclass(slots=True)
class Bucket:
    """A bucket that may hold fires: when its first one is due, and how often it was written.

    A drain that finds it empty forgets it only if nobody wrote in the meantime.
    """

    due_ms: int
    writes: int = 0
    fires: int = 0
    # due_ms is that of a fire that was there in time. False: nobody knows what is in it, or it was written late, or while it was drained.
    exact: bool = True


@dataclass(slots=True)
class Closing:
    """A window that only waits for the runners: all its fires are in the queue, none later than `last_entry`."""

    through_s: int
    last: Ends


@dataclass(slots=True, eq=False)
class Partition:
    """One owned partition. An object lives as long as one epoch: who holds an old one finds `owned` false."""

    id: int
    epoch: int
    token: str
    believed_until: float  # by the boot-time clock: attempt start + TTL - margin
    settled_through_s: int
    feed_snapshot: str
    plan_from_s: int  # fires due before were planned under an earlier epoch, and Redis still has them
    planned_until: int  # minutes below are in buckets
    plan_seq: int = 0  # of the last plan that Redis has acknowledged: a drain in between must not expect the next
    feed_applied: bool = False  # what was written since feed_snapshot, before we came, is planned too
    owned: bool = True
    buckets: dict[BucketId, Bucket] = field(default_factory=dict)
    closing: Closing | None = None
    clear_through_s: int | None = None  # the runners are through with everything due up to here
    clear_since: float = float("inf")  # monotonic
    planned_fires: dict[int, int] = field(default_factory=dict)  # by minute, since this epoch began: sizes settling

    def fence(self) -> Fence:
        """What is compared at each write."""
        return Fence(self.id, self.epoch, self.token, self.plan_seq)

    def expect(self, minute: int, due_ms: int, fires: int = 1, *, crowd: bool = False, ahead: bool = True) -> None:
        """Notes that a bucket holds fires from `due_ms` on. `ahead`: they were planned before they were due."""
        id = BucketId(self.id, minute, crowd)
        bucket = self.buckets.get(id)
        if bucket is None:
            bucket = self.buckets[id] = Bucket(due_ms, exact=ahead and fires > 0)
        elif due_ms < bucket.due_ms:
            bucket.exact = bucket.exact and ahead
        bucket.due_ms = min(bucket.due_ms, due_ms)
        bucket.writes += 1
        bucket.fires += fires
        self.planned_fires[minute] = self.planned_fires.get(minute, 0) + fires
