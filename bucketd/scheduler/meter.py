"""What a node shows to whoever watches it: its counters, and where it stands now. Reads what the duties know; asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.duty import Record
from bucketd.scheduler.ownership import Ownership
from bucketd.scheduler.planner import Planner
from bucketd.scheduler.surveyor import Surveyor
from bucketd.store.clock import monotonic
from bucketd.store.exposition import Sample
from bucketd.store.metrics import OF_SCHEDULER

# The names of `Node.counts`, and the metrics that they are, with the value of its label.
COUNTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "planned": ("bucketd_fires_planned_total", ()),
    "drained": ("bucketd_fires_drained_total", ()),
    "buckets_expired": ("bucketd_buckets_expired_total", ()),
    "queue_full": ("bucketd_queue_full_total", ()),
    "taken": ("bucketd_partition_changes_total", ("taken",)),
    "released": ("bucketd_partition_changes_total", ("released",)),
    "lost": ("bucketd_partition_changes_total", ("lost",)),
    "forfeited": ("bucketd_partition_changes_total", ("zombie",)),
    "lost_data": ("bucketd_redis_lost_data_total", ()),
    "missing": ("bucketd_settled_missing_total", ()),
    "verdict_deferred": ("bucketd_settled_rows_total", ("deferred",)),
    "verdict_held": ("bucketd_settled_rows_total", ("held",)),
    "verdict_skipped_misfire": ("bucketd_settled_rows_total", ("skipped_misfire",)),
    "verdict_skipped_past_deadline": ("bucketd_settled_rows_total", ("skipped_past_deadline",)),
    "owed": ("bucketd_windows_owed_total", ()),
    "expanded": ("bucketd_backfill_rows_total", ()),
    "expired": ("bucketd_occurrences_expired_total", ()),
    "buried": ("bucketd_runners_dead_total", ()),
    "recovered": ("bucketd_runs_recovered_total", ()),
    "orphaned": ("bucketd_runs_orphaned_total", ()),
    "quarantined": ("bucketd_specs_quarantined_total", ()),
    "retimed": ("bucketd_schedules_retimed_total", ()),
}


class Meter:
    """Of one node. `record` is what its loops write into."""

    definitions = OF_SCHEDULER

    def __init__(self, node: Node, ownership: Ownership, planner: Planner, surveyor: Surveyor) -> None:
        self._node = node
        self._ownership = ownership
        self._planner = planner
        self._surveyor = surveyor
        self.record = Record()

    def checks(self) -> dict[str, bool]:
        """What makes a node ready. `stores`: both answered a whole look at the ring within the time of a lease; a node that owns nothing
        is ready too."""
        node, now = self._node, monotonic()
        return {
            "stores": now - self._ownership.looked_at < node.settings.lease_ttl_s,
            "leases": all(partition.believed_until > now for partition in node.owned.values()),
            "working": not node.stop.is_set(),
        }

    def read(self) -> Iterator[Sample]:
        """Everything, as of now."""
        for name, (metric, labels) in COUNTED.items():
            yield Sample(metric, self._node.counts.get(name, 0), labels)
        for duty, turns in self.record.turns.items():
            yield Sample("bucketd_duty_duration_seconds", turns, (duty,))
        for part, failures in self.record.failures.items():
            yield Sample("bucketd_store_failures_total", failures, (part,))
        yield from self._standing()
        yield from self._surveyor.samples()

    def _standing(self) -> Iterator[Sample]:
        node = self._node
        yield Sample("bucketd_partitions_owned", len(node.believed()))
        yield Sample("bucketd_ring_nodes", self._ownership.nodes)
        if self._planner.followed_at is not None:
            yield Sample("bucketd_feed_lag_seconds", monotonic() - self._planner.followed_at)
        if not node.clock.synchronised:
            return
        yield Sample("bucketd_clock_skew_seconds", node.clock.skew_s())
        if owned := node.owned.values():
            now_s = node.clock.now()
            yield Sample("bucketd_planned_ahead_seconds", min(one.planned_until for one in owned) * 60 - now_s)
            yield Sample("bucketd_settled_lag_seconds", now_s - min(one.settled_through_s for one in owned))
