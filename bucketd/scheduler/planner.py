"""Step 1 of 5: schedule -> bucket. Every minute of due is enumerated, two minutes ahead, never chained from fire to fire.

Keeps: whatever is due in the horizon is in a bucket once this has run, so a lost link heals with the next minute, and firing writes
nothing to `schedules`. If the process dies halfway, the fence still carries the old plan_seq and the next owner plans again; adding
a fire twice changes nothing.

The change feed and the horizon are worked off by one service, one after the other: a schedule that the feed shows is planned into
the minutes that were planned without it, and a minute planned later sees it anyway.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.crowds import apart
from bucketd.scheduler.ownership import LOOK_BACK_S, Ownership
from bucketd.scheduler.partition import Partition
from bucketd.scheduler.progress import Progress
from bucketd.scheduler.specbook import DueSpecs, Instant, SpecBook
from bucketd.scheduler.verdicts import MAX_JITTER_S
from bucketd.store import buckets, feed, plan, quarantine
from bucketd.store.buckets import BucketId, FenceState
from bucketd.store.clock import monotonic
from bucketd.store.failpoint import reach
from bucketd.store.fires import tail
from bucketd.store.log import event, warn

# Built and sent at once, in 10 to 20 ms in which neither a drain nor the lease has its turn. With 50,000 it was 200 to 300 ms, and a
# hand-over, which waits for a handful of answers, waited for as many of these; to plan the whole horizon costs the same.
PIECE_FIRES = 5_000
CHUNK_FIRES = 1_000  # of one bucket at a time: a piece grows beyond its size by no more
LEARNED_SPECS = 500  # at once: reading a rule takes 20 us
FROZEN_SPECS = 10_000  # learned at once: a start, or a bulk load
FEED_ROWS = 20_000  # more writes at once: planning the horizon anew is cheaper than following them


@dataclass(frozen=True, slots=True)
class Report:
    """What one round planned: fires added, of which from the change feed, and minutes of partitions completed."""

    fires: int
    from_feed: int
    minutes: int


class Planned(NamedTuple):
    """Fires of one bucket, as ZADD takes them: due in ms, member, due in ms, .."""

    partition: int
    minute: int
    flat: list[int | bytes]


class Batch:
    """Fires on their way to Redis, by bucket."""

    def __init__(self) -> None:
        self.entries: defaultdict[BucketId, list[int | bytes]] = defaultdict(list)
        self.fires = 0

    def add(self, planned: Planned) -> None:
        """Adds fires; there is at least one."""
        self.entries[BucketId(planned.partition, planned.minute)] += planned.flat
        self.fires += len(planned.flat) // 2


class Planner:
    """Plans what this node owns."""

    def __init__(self, node: Node, ownership: Ownership) -> None:
        self._node = node
        self._ownership = ownership
        self._spec_cursor: feed.Cursor | None = None
        self._feed_cursor: feed.Cursor | None = None
        self._quarantined: dict[int, str] | None = None  # specs that were told of; None: Postgres was not asked yet
        self._progress = Progress()
        self.followed_at: float | None = None  # by `monotonic()`: every change committed before is planned

    async def run_once(self) -> Report:
        """Follows the change feed, then plans each minute that the horizon has reached. Raises what the stores raise."""
        owned = self._node.believed()
        if not owned:
            self.followed_at = None
            return Report(0, 0, 0)
        asked_at = monotonic()
        progress = self._progress = Progress()
        async with self._node.pool.connection() as connection:
            from_feed = await self._follow(connection, owned)
            self.followed_at = asked_at
            fires = minutes = 0
            progress.expect(len(due := self._due_for_planning(owned)))
            for minute, plan_from_s, group in due:
                reach("before_plan")
                fires += await self._plan_minute(connection, minute, plan_from_s, group)
                minutes += len(group)
                progress.finished_minute()
            await self._tell_failures(connection)
        progress.end()
        self._node.count("planned", fires + from_feed)
        return Report(fires, from_feed, minutes)

    async def learn_specs(self, connection: AsyncConnection[Any]) -> None:
        """Follows `specs`; before each plan and each settle."""
        asked, book = self._spec_cursor, self._node.book
        cursor, rows = await feed.specs(connection, asked)
        another = asked is not None and not cursor.follows(asked)
        if another:
            # Another timeline: rules may have been lost there, and their ids given out again.
            cursor, rows = await feed.specs(connection, None)
            book = SpecBook()
        for start in range(0, len(rows), LEARNED_SPECS):
            book.learn(rows[start : start + LEARNED_SPECS])
            await asyncio.sleep(0)  # drains are due meanwhile
        if another:
            self._node.book, self._quarantined = book, None
        if len(rows) >= FROZEN_SPECS:
            gc.freeze()  # else each full collection walks all of them
        self._spec_cursor = cursor

    async def _tell_failures(self, connection: AsyncConnection[Any]) -> None:
        """Says which specs were set aside since the last time, and which are computed again: to Postgres and the log, once."""
        book = self._node.book
        if self._quarantined is None:
            self._quarantined = dict.fromkeys(await quarantine.ids(connection), "")
        told, failing = self._quarantined, dict(book.errors)
        fresh = {id: error for id, error in failing.items() if told.get(id) != error}
        released = [id for id in told if book.spec(id) is not None]
        if fresh:
            await quarantine.enter(connection, fresh)
        if released:
            await quarantine.release(connection, released)
        self._quarantined = {id: error for id, error in (told | failing).items() if id not in released}
        self._node.count("quarantined", len(fresh))
        for id, error in fresh.items():
            warn("spec_quarantined", spec=id, error=error)
        for id in released:
            event("spec_released", spec=id)

    async def _follow(self, connection: AsyncConnection[Any], owned: list[Partition]) -> int:
        if self._feed_cursor is None:
            self._feed_cursor = await feed.snapshot(connection)
        cursor, changed = await feed.schedules(connection, self._feed_cursor.snapshot, FEED_ROWS)
        fresh = [partition for partition in owned if not partition.feed_applied]
        missed = await self._before_we_came(connection, fresh)
        # Another timeline, a restored dump, or a bulk load: nothing that was planned can be trusted to be all.
        another = not cursor.follows(self._feed_cursor)
        untrusted = changed is None or another
        if another:
            self._node.wake_owner.set()  # who takes all partitions again
        if untrusted or changed or missed or self._is_behind(owned):
            await self.learn_specs(connection)  # after the schedules: a spec is never newer than what was read of them
        if untrusted or changed is None:
            self._plan_anew(owned)
            changed = []
        planned = await self._plan_changed(changed, {p.id: p for p in owned})
        planned += await self._plan_changed(missed, {p.id: p for p in fresh})
        self._feed_cursor = cursor
        for partition in fresh:
            partition.feed_applied = True
        return planned

    async def _before_we_came(
        self, connection: AsyncConnection[Any], fresh: list[Partition]
    ) -> list[feed.ChangedSchedule]:
        """What was written while nobody owned these partitions, or by a last owner who did not come to it."""
        by_snapshot: defaultdict[str, list[Partition]] = defaultdict(list)
        for partition in fresh:
            by_snapshot[partition.feed_snapshot].append(partition)
        found: list[feed.ChangedSchedule] = []
        for snapshot, group in by_snapshot.items():
            cursor, changed = await feed.schedules(connection, snapshot, FEED_ROWS)
            if changed is None or feed.xmax(cursor.snapshot) < feed.xmax(snapshot):
                self._plan_anew(group)
            else:
                ids = {partition.id for partition in group}
                found += [row for row in changed if row.partition in ids]
        return found

    def _plan_anew(self, owned: Iterable[Partition]) -> None:
        now = int(self._node.clock.now())
        for partition in owned:
            partition.plan_from_s = max(partition.settled_through_s + 1, now - LOOK_BACK_S)
            partition.planned_until = partition.plan_from_s // 60

    async def _plan_changed(self, changed: list[feed.ChangedSchedule], owned: dict[int, Partition]) -> int:
        """Plans schedules that were written into the minutes that were planned without them."""
        written = await self._write(self._changed_fires(changed, owned))
        if written:
            await self._mark([owned[partition] for partition in written])
        return written.total()

    def _changed_fires(self, changed: list[feed.ChangedSchedule], owned: dict[int, Partition]) -> Iterator[Planned]:
        now = int(self._node.clock.now())
        for row in changed:
            partition = owned.get(row.partition)
            if partition is None or row.paused:
                continue
            start_s = max(partition.settled_through_s + 1, now - LOOK_BACK_S)
            end_s = max(partition.planned_until * 60, partition.plan_from_s)  # from there on, minutes show it
            for instant in self._node.book.occurrences(row.spec_id, row.phase, row.jitter_offset_s, start_s, end_s):
                if instant.at_s >= row.from_s:
                    yield Planned(row.partition, instant.due_s // 60, [instant.due_s * 1000, row.head + _tail(instant)])

    def _horizon(self) -> int:
        """The last minute that is to be planned by now."""
        return int(self._node.clock.now() + self._node.settings.horizon_s) // 60

    def _is_behind(self, owned: list[Partition]) -> bool:
        horizon = self._horizon()
        return any(partition.planned_until <= horizon for partition in owned)

    def _due_for_planning(self, owned: list[Partition]) -> list[tuple[int, int, list[Partition]]]:
        """(minute, from which second, partitions) in the order in which they fall due."""
        horizon, oldest = self._horizon(), int(self._node.clock.now() - LOOK_BACK_S) // 60
        groups: defaultdict[tuple[int, int], list[Partition]] = defaultdict(list)
        for partition in owned:
            # After a jump of the clock: what is older would be planned in vain, and weeks of it for minutes.
            for minute in range(max(partition.planned_until, oldest), horizon + 1):
                groups[minute, max(partition.plan_from_s, minute * 60)].append(partition)
        return [(minute, from_s, groups[minute, from_s]) for minute, from_s in sorted(groups)]

    async def _plan_minute(
        self, connection: AsyncConnection[Any], minute: int, from_s: int, group: list[Partition]
    ) -> int:
        book = self._node.book  # this one until the minute is written: another timeline brings a new one
        window = book.due(from_s, minute * 60 + 60)
        ids = [partition.id for partition in group]
        living = window.start_s - MAX_JITTER_S  # what ended before that has nothing due in the window
        whole = await plan.whole(connection, [due.spec_id for due in window.whole], ids, living)
        ranges = await plan.ranges(connection, [due.phases for due in window.ranges], ids, living)
        written = await self._write(_minute_fires(book, window, whole, ranges))
        reach("after_plan")
        await self._mark(group)
        for partition in group:
            partition.planned_until = max(partition.planned_until, minute + 1)
        return written.total()

    async def _write(self, fires: Iterable[Planned]) -> Counter[int]:
        """Writes fires piece by piece, with a turn of the loop between; how many each partition got."""
        batch, written = Batch(), Counter[int]()
        for planned in fires:
            batch.add(planned)
            written[planned.partition] += len(planned.flat) // 2
            if batch.fires >= PIECE_FIRES:
                await self._send(batch)
                batch = Batch()
        await self._send(batch)
        return written

    async def _send(self, batch: Batch) -> None:
        """Writes a batch, and tells the drainer what to expect."""
        if not batch.fires:
            return
        await asyncio.sleep(0)  # between building the batch and packing it
        entries = apart(batch.entries)
        first_due: dict[BucketId, int] = {id: min(flat[::2]) for id, flat in entries.items()}  # type: ignore[misc]
        for id, due_ms in first_due.items():
            # Before the write as well: a drain that finds the bucket empty now must not forget what is on its way.
            self._expect(id, due_ms, len(entries[id]) // 2)
        await buckets.add(self._node.redis, self._node.keys, entries)
        self._progress.wrote(batch.fires)
        for id, due_ms in first_due.items():
            self._expect(id, due_ms, 0)
        self._node.wake_drainer.set()

    async def _mark(self, group: list[Partition]) -> None:
        """Marks at the fences that their owners' fires are written: all of a minute, never a part."""
        node = self._node
        writers = [partition for partition in group if partition.owned]
        fences = [partition.fence()._replace(plan_seq=partition.plan_seq + 1) for partition in writers]
        states = await buckets.mark(node.redis, node.keys, fences, compare=node.compare)
        for partition, state in zip(writers, states, strict=True):
            if state is FenceState.ZOMBIE:
                self._ownership.forfeit(partition)
            elif state is FenceState.LOST:
                self._ownership.suspect(partition)
            else:
                partition.plan_seq += 1

    def _expect(self, id: BucketId, due_ms: int, fires: int) -> None:
        partition = self._node.owned.get(id.partition)
        if partition is not None:
            ahead = due_ms >= self._node.clock.now() * 1000
            partition.expect(id.minute, due_ms, fires, crowd=id.crowd, ahead=ahead)


def _minute_fires(
    book: SpecBook, window: DueSpecs, whole: list[plan.Heads], ranges: list[plan.Heads]
) -> Iterator[Planned]:
    """Fires of a window inside one minute."""
    minute = window.start_s // 60
    shared = [(due.at_s * 1000, tail(due.at_s, due.previous_s, due.next_s)) for due in window.whole]
    for partition, packed in whole:
        for start in range(0, len(packed), CHUNK_FIRES * plan.WHOLE.size):
            flat: list[int | bytes] = []
            for place, head in plan.WHOLE.iter_unpack(packed[start : start + CHUNK_FIRES * plan.WHOLE.size]):
                due_ms, shared_tail = shared[place - 1]
                flat += (due_ms, head + shared_tail)
            yield Planned(partition, minute, flat)
    for partition, packed in ranges:
        for start in range(0, len(packed), CHUNK_FIRES * plan.RANGE.size):
            flat = []
            for place, phase, jitter_s, head in plan.RANGE.iter_unpack(
                packed[start : start + CHUNK_FIRES * plan.RANGE.size]
            ):
                for instant in book.instants(window.ranges[place - 1], phase, jitter_s, window):
                    flat += (instant.due_s * 1000, head + _tail(instant))
            if flat:
                yield Planned(partition, minute, flat)


def _tail(instant: Instant) -> bytes:
    return tail(instant.at_s, instant.previous_s, instant.next_s)
