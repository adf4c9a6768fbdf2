"""Settling: what should have a row and has none gets one, with its verdict; then the watermark moves.

Keeps I3 (every due occurrence has a run, a skip, or is counted in one) and I8 (settled_through never lies and never goes back):
verdicts, floors and watermark are one transaction under the epoch. If the process dies halfway, nothing of it happened.

A minute is settled when all its fires are in the queue and the runners are through with everything up to there. That is awaited to
save work, not for safety: an occurrence that is settled and confirmed at once meets itself at the key of `runs`. With all
runners away nothing is settled, so that the window is judged as a whole when they are back. Occurrences of a spec that cannot be computed
are passed over, and counted nowhere: nobody knows them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from psycopg import AsyncConnection, DataError, IntegrityError

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.judge import judge_slots
from bucketd.scheduler.partition import Closing, Partition
from bucketd.scheduler.planner import Planner
from bucketd.scheduler.verdicts import MAX_JITTER_S
from bucketd.store import backlog, settle
from bucketd.store.clock import monotonic
from bucketd.store.failpoint import reach
from bucketd.store.keys import shard_of
from bucketd.store.log import event, warn
from bucketd.store.settle import DueRange, Slot, VersionRow
from bucketd.timing import EverySpec

LOOK_S = 1.0  # between looks for what the runners are through with
PATIENCE_S = 15.0  # for runners that are back and catching up; in a lasting backlog settling goes on behind it
GRACE_S = 1.0  # after a minute's end: the runners' last confirms of it are on their way
LONGEST_WINDOW_S = 300  # longer ones are owed, and expanded in chunks
FIRES = 200_000  # a transaction: bounds how long its watermarks stay locked
# How far behind the watermark a late commit is looked after; older slots are past the catch-up window.
LATE_REACH_S = 86_400


@dataclass(frozen=True, slots=True)
class Report:
    """What one round settled: partitions, occurrences found without a row, rows written, windows owed."""

    partitions: int
    missing: int
    written: int
    owed: int


class Settler:
    """Settles what this node owns."""

    def __init__(self, node: Node, planner: Planner) -> None:
        self._node = node
        self._planner = planner
        self._refused: set[int] = set()  # partitions that Postgres refused when they were last tried

    async def run_once(self) -> Report:
        """Settles every window whose fires the runners are through with. Raises what the stores raise."""
        node = self._node
        closable = [(p, through) for p in node.believed() if (through := self._closable_through(p)) is not None]
        if not closable:
            return Report(0, 0, 0, 0)
        # After the look at the buckets: what left them is in there.
        queues = await backlog.read_all(node.redis, node.keys)
        for partition, through_s in closable:
            self._close(partition, through_s, queues[shard_of(partition.id)])
        async with node.pool.connection() as connection:
            await settle.ensure_days(connection)
        missing = written = owed = count = 0
        for group, through_s in self._ready():
            for report in await self._settle_apart(group, through_s):
                count += report.partitions
                missing += report.missing
                written += report.written
                owed += report.owed
        if written:
            await node.redis.publish(node.keys.wake, b"settled")
        node.count("settled_late", written)
        node.count("missing", missing)
        node.count("owed", owed)
        if missing or owed:
            event("settled", partitions=count, missing=missing, written=written, owed=owed)
        return Report(count, missing, written, owed)

    def pause_s(self) -> float:
        """How long to sleep: until the next minute is over, unless something of an earlier one is still to be settled."""
        node = self._node
        now = node.clock.now() - GRACE_S
        over_s = int(now) // 60 * 60 - 1
        behind = any(partition.settled_through_s < over_s for partition in node.owned.values())
        return LOOK_S if behind else over_s + 61 - now

    def _closable_through(self, partition: Partition) -> int | None:
        """Last second of the last minute that is over, planned, and empty in Redis; None: nothing new, or not all empty.

        What is unplanned or undrained of one minute keeps the minutes before it waiting too: an outage is judged as a whole.
        """
        minute = int(self._node.clock.now() - GRACE_S) // 60 - 1
        through_s = minute * 60 + 59
        unplanned = partition.planned_until <= minute or not partition.feed_applied
        if through_s <= partition.settled_through_s or unplanned or any(full.minute <= minute for full in partition.buckets):
            return None
        return through_s

    def _close(self, partition: Partition, through_s: int, queues: backlog.Shard) -> None:
        """Notes which window can be settled, and which one next.

        If minutes have passed since the runners were last through, they were away: then the window grows to now and is
        judged as a whole, unless they do not catch up within PATIENCE_S.
        """
        closing = partition.closing
        if closing is None:
            closing = partition.closing = Closing(through_s, queues.last)
        if not queues.clear_through(closing.last):
            return
        partition.clear_through_s = closing.through_s
        partition.clear_since = min(partition.clear_since, monotonic())
        if closing.through_s < through_s:
            partition.closing = Closing(through_s, queues.last)

    @staticmethod
    def _settles(partition: Partition) -> int | None:
        """Through where a partition is to be settled now; None: not yet."""
        clear_s, closing = partition.clear_through_s, partition.closing
        if clear_s is None or closing is None:
            return None
        patient = closing.through_s > clear_s and monotonic() - partition.clear_since < PATIENCE_S
        return None if patient else clear_s

    def _ready(self) -> Iterator[tuple[list[Partition], int]]:
        """Partitions whose closing window the runners are through with, in groups of one transaction each."""
        groups: defaultdict[tuple[int, int, str], list[Partition]] = defaultdict(list)
        for partition in self._node.believed():
            through_s = self._settles(partition)
            if through_s is not None:
                groups[partition.settled_through_s, through_s, partition.feed_snapshot].append(partition)
        for (_, through_s, _), group in groups.items():
            chunk: list[Partition] = []
            fires = 0
            for partition in group:
                chunk.append(partition)
                fires += sum(partition.planned_fires.values())
                if fires >= FIRES:
                    yield chunk, through_s
                    chunk, fires = [], 0
            if chunk:
                yield chunk, through_s

    async def _settle_apart(self, group: list[Partition], through_s: int) -> list[Report]:
        """Settles a group; if Postgres refuses something in it, each partition by itself, so that only that one stays behind.

        It is tried again each round. Once its window is a long one it is owed, and others can follow.
        """
        ids = {partition.id for partition in group}
        try:
            report = await self._settle(group, through_s)
        except (DataError, IntegrityError) as error:
            if len(group) > 1:
                return [report for partition in group for report in await self._settle_apart([partition], through_s)]
            if not ids <= self._refused:
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                warn("settle_refused", partition=group[0].id, error=text)
            self._refused |= ids
            return []
        for id in ids & self._refused:
            event("settle_recovered", partition=id)
        self._refused -= ids
        return [report]

    async def _settle(self, group: list[Partition], through_s: int) -> Report:
        """One transaction: the window (settled_through, through_s] of partitions that stand alike."""
        from_s, cursor = group[0].settled_through_s, group[0].feed_snapshot
        owed = through_s - from_s > LONGEST_WINDOW_S
        async with self._node.pool.connection() as connection, connection.transaction():  # guard: one-transaction
            epochs = {partition.id: partition.epoch for partition in group}
            marks = {m.partition: m for m in await settle.lock(connection, epochs, compare=self._node.compare)}
            current = [p for p in group if p.id in marks and marks[p.id][1:3] == (from_s, cursor)]  # guard: settled-once
            missing, written = 0, Counter[str]()
            if current:
                now_s = marks[current[0].id].now_s
                ids = [partition.id for partition in current]
                snapshot, late = await settle.late(connection, cursor, ids, from_s)
                await self._planner.learn_specs(connection)
                if owed:
                    await settle.owe(connection, ids, from_s, through_s)
                slots = self._slots_of(late, from_s - LATE_REACH_S, from_s)
                if not owed:
                    slots += await self._missing(connection, ids, from_s, through_s)
                missing, written = await judge_slots(connection, self._node.book, slots, now_s)
                await settle.advance(connection, ids, through_s, snapshot)
                reach("before_settle")
        for partition in group:
            partition.closing, partition.clear_through_s, partition.clear_since = None, None, float("inf")
            if partition in current:
                partition.settled_through_s, partition.feed_snapshot = through_s, snapshot
                partition.planned_fires = {m: n for m, n in partition.planned_fires.items() if m * 60 > through_s}
            elif partition.id in marks:  # another node settled it: only without ownership
                partition.settled_through_s, partition.feed_snapshot = marks[partition.id][1:3]
        self._node.count_verdicts(written)
        return Report(len(current), missing, written.total(), len(current) if owed else 0)

    async def _missing(
        self, connection: AsyncConnection[Any], ids: list[int], from_s: int, through_s: int
    ) -> list[Slot]:
        """Occurrences of (from_s, through_s] without a row, by the timing that held at their instant."""
        book, start, end = self._node.book, from_s + 1, through_s + 1
        due = book.due(start, end)
        bounds = (start - MAX_JITTER_S, end)
        slots = await settle.whole(
            connection, [one.spec_id for one in due.whole], [one.at_s for one in due.whole], ids, (start, end)
        )
        wanted: list[DueRange] = []
        for one in due.ranges:
            spec = book.spec(one.spec_id)
            every_s = spec.every_s if isinstance(spec, EverySpec) else None
            wanted.append(DueRange(one.spec_id, one.lo, one.hi, one.cron.at_s if one.cron else None, every_s))
        slots += await settle.ranges(connection, wanted, ids, (start, end), bounds)
        # Read after the current timing: an edit that lands between the two reads shows its old interval here.
        older = await settle.versions(connection, bounds[0], end, ids)
        slots = [slot for slot in slots if not book.leaves_out(slot.spec_id, slot.at_s)]
        return self._slots_of(older, from_s, through_s) + slots

    def _slots_of(self, timings: list[VersionRow], from_s: int, through_s: int) -> list[Slot]:
        """Occurrences due in (from_s, through_s] that these timings made while they held."""
        slots: list[Slot] = []
        for timing in timings:
            # Never the whole window for one that held for seconds of it: that of late commits is a day.
            start = max(from_s + 1, ceil(timing.from_s) + timing.jitter_offset_s)
            end = min(through_s + 1, ceil(timing.until_s) + timing.jitter_offset_s)
            if start < end:
                slots += [
                    Slot(timing.schedule_id, instant.at_s, timing.spec_id, timing.phase, timing.jitter_offset_s)
                    for instant in self._node.book.occurrences(
                        timing.spec_id, timing.phase, timing.jitter_offset_s, start, end
                    )
                ]
        return slots
