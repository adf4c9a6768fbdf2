"""Expansion of what is too long for one transaction: users' backfills, and windows that nobody watched.

A chunk is one transaction: rows, floors and cursor. If the process dies halfway the chunk did not happen; if two nodes meet,
`skip locked` sends the second away. A user's backfill goes on only while few background rows wait, so it uses what live work
leaves over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, DataError, IntegrityError

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.judge import judge_slots
from bucketd.scheduler.planner import Planner
from bucketd.scheduler.verdicts import MAX_JITTER_S
from bucketd.store import expand, settle
from bucketd.store.expand import Filed, Owed, Unwatched
from bucketd.store.log import event, warn
from bucketd.store.settle import Slot, VersionRow

CHUNK_ROWS = 2_000  # occurrences a transaction
CHUNK_SCHEDULES = 5_000  # schedules of an owed window a transaction ..
CHUNK_SLOTS = 20_000  # .. unless they list this many slots before
LISTED = 1_000  # newest slots of a schedule that are looked at one by one, or as many as it catches up; older ones are counted
WAITING_MAX = 10_000  # background rows that may be due and wait


@dataclass(frozen=True, slots=True)
class Report:
    """What one round expanded: rows written, whether more is owed, whether runners must catch up first."""

    created: int
    more: bool
    full: bool


class Expander:
    """Expands one chunk of the oldest open backfill."""

    def __init__(self, node: Node, planner: Planner) -> None:
        self._node = node
        self._planner = planner

    async def run_once(self) -> Report:
        """One chunk. Raises what the stores raise."""
        node = self._node
        if not node.owned:
            return Report(0, False, False)
        async with node.pool.connection() as connection:
            if not await expand.anything_owed(connection):  # the common case: one short statement a second
                return Report(0, False, False)
            return await self._expand(connection)

    async def _expand(self, connection: AsyncConnection[Any]) -> Report:
        node = self._node
        async with connection.transaction():
            owed = await expand.next_owed(connection)
            if owed is None:
                return Report(0, False, False)
            # What settling owes is bounded by itself, and promised in time: it does not wait for other people's backfills.
            if owed.kind == "user" and await expand.waiting(connection, WAITING_MAX) >= WAITING_MAX:
                return Report(0, True, True)
            await self._planner.learn_specs(connection)
            created = await self._chunk(connection, owed)
        if created:
            await node.redis.publish(node.keys.wake, b"expanded")
            event("expanded", backfill=owed.backfill_id, kind=owed.kind, created=created)
        node.count("expanded", created)
        return Report(created, True, False)

    async def _chunk(self, connection: AsyncConnection[Any], owed: Owed) -> int:
        """Rows of the next chunk. One that Postgres refuses ends the backfill: it would be refused for ever, on every node."""
        try:
            async with connection.transaction():
                return await (self._user(connection, owed) if owed.kind == "user" else self._settle(connection, owed))
        except (DataError, IntegrityError) as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
        await expand.refuse(connection, owed, text)
        warn("backfill_refused", backfill=owed.backfill_id, kind=owed.kind, partition=owed.partition, error=text)
        return 0

    async def _user(self, connection: AsyncConnection[Any], owed: Owed) -> int:
        """Every occurrence of [from, until) becomes a deferred row, whatever floor and misfire policy say."""
        rows: list[tuple[Filed, int]] = []
        filed = await expand.user_schedules(connection, owed, CHUNK_ROWS)
        cursor: tuple[UUID | None, int | None] = (owed.cursor_id, owed.cursor_at_s)
        finished = len(filed) < CHUNK_ROWS
        for schedule in filed:
            resumed = schedule.schedule_id == owed.cursor_id and owed.cursor_at_s is not None
            start_s = owed.cursor_at_s + 1 if resumed and owed.cursor_at_s is not None else owed.from_s
            room = CHUNK_ROWS - len(rows)
            ats = self._node.book.fires(schedule.spec_id, start_s, owed.until_s, schedule.phase, room + 1)
            rows += [(schedule, at) for at in ats[:room]]
            cursor = (schedule.schedule_id, owed.until_s)
            if len(ats) > room:
                cursor, finished = (schedule.schedule_id, ats[room] - 1), False
                break
        created = await expand.insert(connection, rows) if rows else 0
        await expand.move(connection, owed, cursor, created, done=finished)
        return created

    async def _settle(self, connection: AsyncConnection[Any], owed: Owed) -> int:
        """Every occurrence due in (from, until] without a row is judged by its schedule's policy, as settling would have."""
        assert owed.partition is not None
        await expand.watch(connection, owed.partition)
        schedules = await expand.settle_schedules(connection, owed, CHUNK_SCHEDULES)
        versions: defaultdict[UUID, list[VersionRow]] = defaultdict(list)
        for row in await settle.versions(connection, owed.from_s - MAX_JITTER_S, owed.until_s + 1, [owed.partition]):
            versions[row.schedule_id].append(row)
        slots: list[Slot] = []
        unlisted: dict[UUID, int] = {}
        ranges: dict[UUID, tuple[int, int]] = {}
        last, done = owed.cursor_id, len(schedules) < CHUNK_SCHEDULES
        for schedule in schedules:
            if len(slots) >= CHUNK_SLOTS:
                done = False
                break
            last = id = schedule.schedule_id
            for timing in [*versions[id], self._current(schedule, owed.until_s)]:
                clipped = timing._replace(from_s=max(timing.from_s, schedule.floor_s))
                found, more, (low_s, high_s) = self._newest(clipped, owed, max(LISTED, schedule.catch_up_cap))
                slots += found
                if more:
                    unlisted[id] = unlisted.get(id, 0) + more
                    known = ranges.get(id, (low_s, high_s))
                    ranges[id] = (min(known[0], low_s), max(known[1], high_s))
            await asyncio.sleep(0)  # a thousand slots are some milliseconds, and drains are due meanwhile
        for id, rows in (await expand.rows_of(connection, ranges)).items():
            unlisted[id] = max(unlisted[id] - rows, 0)  # confirmed before the outage, or since
        listed = {slot.schedule_id for slot in slots}
        self._node.count("expired", sum(more for id, more in unlisted.items() if id not in listed))
        _, written = await judge_slots(connection, self._node.book, slots, owed.now_s, unlisted)
        await expand.move(connection, owed, (last, None), written.total(), done=done)
        self._node.count_verdicts(written)
        return written.total()

    @staticmethod
    def _current(schedule: Unwatched, until_s: int) -> VersionRow:
        return VersionRow(
            schedule.schedule_id,
            schedule.spec_id,
            schedule.phase,
            schedule.jitter_offset_s,
            schedule.from_s,
            until_s + 1 if schedule.ends_s is None else min(until_s + 1, schedule.ends_s),
        )

    def _newest(self, timing: VersionRow, owed: Owed, most: int) -> tuple[list[Slot], int, tuple[int, int]]:
        """(newest slots of the window, at most `most`, number of older ones, range of those).

        Searched backwards: a long outage is never walked through. What lies on days that retention let go is counted, not listed.
        """
        book = self._node.book
        if book.spec(timing.spec_id) is None:
            return [], 0, (0, 0)
        # At or above every bound that cannot be a slot: first whole second after from, of due, of the timing's own interval.
        low = max(owed.from_s + 1 - timing.jitter_offset_s, -(-timing.from_s // 1))
        high = min(owed.until_s + 1 - timing.jitter_offset_s, -(-timing.until_s // 1))
        ats: list[int] = []
        before, lowest = int(high), max(int(low), owed.days_from_s)
        while len(ats) < most:
            at = book.previous(timing.spec_id, before, timing.phase)
            if at is None or at < lowest:
                break
            ats.append(at)
            before = at
        counts = len(ats) == most or lowest > low
        older = book.count(timing.spec_id, int(low), before, timing.phase) if counts else 0
        id, spec_id, phase, jitter_s = timing[:4]
        slots = [Slot(id, at, spec_id, phase, jitter_s) for at in reversed(ats)]
        return slots, older, (int(low), before)
