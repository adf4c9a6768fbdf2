"""Keeps the zones' data of the cluster: who may compute, what a newer release moves, and the bytes to tell it by.

The version moves first, the schedules after: from then on a node with older data ends with its next look, before it renews a lease.
When the last lease of such a node is over (or none is there), each schedule whose fires differ gets a timing edit: what was planned
by the old data from now on is refused, and planned by the new ones. If the process dies halfway, the version says what there is
to be moved and the stored bytes say which zones are left; any node goes on, and no schedule moves twice.

What was due before its schedule moved follows the old data. Settling knows only the new ones, so where they differ in the last
minutes those slots are judged here and the floor rises past them. A window that nobody watched is judged by the new data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.judge import judge_slots
from bucketd.scheduler.moves import AHEAD_S, SpecMoves, read
from bucketd.scheduler.release import unfit
from bucketd.scheduler.verdicts import MAX_JITTER_S
from bucketd.store import audit, members, tzdata
from bucketd.store.errors import SchemaError
from bucketd.store.locks import alone
from bucketd.store.log import event, warn
from bucketd.store.operation import drive_async
from bucketd.store.settle import Slot
from bucketd.store.tzdata import State, Timed
from bucketd.timing import TZDATA_VERSION, is_zone
from bucketd.timing.shifts import ZoneShift
from bucketd.timing.zones import zone_data

CHUNK = 1_000  # schedules a transaction
SPECS = 500  # read at once
WATCHED_S = 300  # a partition that is settled no further back was watched: its last slots are judged by the old data
_LOCK = 0x62757A6F6E65  # "buzone": one node moves schedules at a time


@dataclass(frozen=True, slots=True)
class Report:
    """Zones whose data were stored for the first time; zones, specs and schedules that were moved; whether more are left."""

    kept: int = 0
    zones: int = 0
    specs: int = 0
    schedules: int = 0
    more: bool = False


class Upgrade(NamedTuple):
    """What is being moved: the release before, since when nobody plans by it, and the first second that may move."""

    before: str
    begun: datetime
    now_s: int


class Moving(NamedTuple):
    """A schedule that is to be moved; `moves` is None if what the old data of its zone were is not known."""

    schedule: Timed
    moves: SpecMoves | None


class ZoneKeeper:
    """Any node may keep them; two that meet are sent apart by a lock."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def admit(self, connection: AsyncConnection[Any]) -> State:
        """Where the cluster stands, taken over to this node's data if it has older ones, or none.

        Raises SchemaError if this node's are older: it must not compute.
        """
        state = await drive_async(tzdata.state(), connection)
        if error := unfit(state.version):
            raise error
        if state.version == TZDATA_VERSION:
            return state
        if await drive_async(tzdata.adopt(TZDATA_VERSION, state.version), connection):
            event("tzdata_adopted", old=state.version or "none", new=TZDATA_VERSION)
        return await self.admit(connection)  # ends: whoever was faster has raised the version, and releases are few

    async def run_once(self) -> Report:
        """Stores the data of new zones, or goes on with a move. Raises what the stores raise."""
        async with self._node.pool.connection() as connection:
            try:
                state = await self.admit(connection)
            except SchemaError:
                return Report()  # the owner's next look ends the node in order
            if state.moving_from is None:
                return await self._keep_new(connection)
            if not await self._is_alone(state):
                return Report(more=True)
            async with alone(self._node.pool, _LOCK) as is_alone:
                return await self._move(connection) if is_alone else Report(more=True)

    async def _keep_new(self, connection: AsyncConnection[Any]) -> Report:
        names = [name for name in await drive_async(tzdata.unkept(), connection) if is_zone(name)]
        if names:
            data = {name: zone_data(name) for name in names}
            await drive_async(tzdata.keep(TZDATA_VERSION, data, replace=False), connection)
        return Report(kept=len(names))

    async def _is_alone(self, state: State) -> bool:
        """Whether no node plans by older data: since the version moved it has looked and ended, or its leases are over."""
        node = self._node
        if state.begun is not None or (state.at and state.now_s - state.at.timestamp() >= node.settings.lease_ttl_s):
            return True
        ring = await members.read(node.redis, node.keys, state.now_s)
        return set(ring.nodes) <= {node.id.hex}

    async def _move(self, connection: AsyncConnection[Any]) -> Report:
        """All zones, one after the other; stops between two chunks if the node is to stop."""
        begun = await drive_async(tzdata.begin(TZDATA_VERSION), connection)
        state = await drive_async(tzdata.state(), connection)
        if begun is None or state.moving_from is None:
            return Report()  # another node has finished it
        upgrade = Upgrade(state.moving_from, begun, int(state.now_s))
        zones = specs = schedules = 0
        for name, data in (await drive_async(tzdata.used(), connection)).items():
            if not is_zone(name) or data == zone_data(name):
                continue
            moved = await self._move_zone(connection, name, data, upgrade)
            zones, specs, schedules = zones + (moved[1] > 0), specs + moved[0], schedules + moved[1]
            if self._node.stop.is_set():
                return Report(zones=zones, specs=specs, schedules=schedules, more=True)
            await drive_async(tzdata.keep(TZDATA_VERSION, {name: zone_data(name)}, replace=True), connection)
        await drive_async(tzdata.finish(TZDATA_VERSION), connection)
        event("tzdata_moved", old=upgrade.before, new=TZDATA_VERSION, zones=zones, specs=specs, schedules=schedules)
        return Report(zones=zones, specs=specs, schedules=schedules)

    async def _move_zone(
        self, connection: AsyncConnection[Any], name: str, data: bytes | None, upgrade: Upgrade
    ) -> tuple[int, int]:
        """(specs, schedules) of a zone that were moved."""
        shift = _shift(name, data, upgrade.now_s)
        if shift is not None and not shift.periods:
            return 0, 0
        specs = schedules = after = 0
        batch: list[Moving] = []  # of many specs: most have few schedules, and a transaction each would cost the time
        while rows := await drive_async(tzdata.specs(name, after, SPECS), connection):
            for after, rule in rows:
                spec = read(rule)
                if spec is None:
                    continue
                moves = None if shift is None else SpecMoves(shift, spec, upgrade.now_s)
                found = 0
                async for page in self._moving(connection, after, moves):
                    batch, found = batch + page, found + len(page)
                    while len(batch) >= CHUNK:
                        schedules += await self._retime(connection, batch[:CHUNK], upgrade)
                        batch = batch[CHUNK:]
                if self._node.stop.is_set():
                    return specs, schedules
                specs += found > 0
        return specs, schedules + (await self._retime(connection, batch, upgrade) if batch else 0)

    async def _moving(
        self, connection: AsyncConnection[Any], spec_id: int, moves: SpecMoves | None
    ) -> AsyncIterator[list[Moving]]:
        """The schedules of a spec that move, page by page; without `moves` (the old data are not known) that is all of them."""
        # Comparing may take a second, and drains are due meanwhile.
        cursor: tzdata.Cursor | None = tzdata.FIRST
        if moves is not None and not await asyncio.to_thread(moves.possible):
            return
        while cursor is not None and not self._node.stop.is_set():
            rows, cursor = await drive_async(tzdata.schedules(spec_id, cursor, CHUNK), connection)
            if rows:
                yield await asyncio.to_thread(_those_that_move, moves, rows)

    async def _retime(self, connection: AsyncConnection[Any], batch: list[Moving], upgrade: Upgrade) -> int:
        """One transaction: verdicts on what was due by the old data, then the edit. How many were edited."""
        async with connection.transaction():
            await drive_async(audit.act_as(f"bucketd: tzdata {upgrade.before} -> {TZDATA_VERSION}"), connection)
            floors: dict[UUID, int | None] = dict.fromkeys(schedule.id for schedule, _ in batch)
            if batch[0].moves is not None and batch[0].moves.differed_lately:  # which is a matter of the zone
                floors |= await self._judge(connection, batch, upgrade)
            count = len(await drive_async(tzdata.retime(floors, upgrade.begun), connection))
        self._node.count("retimed", count)
        return count

    async def _judge(
        self, connection: AsyncConnection[Any], batch: list[Moving], upgrade: Upgrade
    ) -> dict[UUID, int | None]:
        """Floors behind the slots that were due by now; each of those without a row has got its verdict."""
        now_s = (await drive_async(tzdata.state(), connection)).now_s
        slots: list[Slot] = []
        floors: dict[UUID, int | None] = {}
        for row, moves in batch:
            watched = row.settled_through_s >= now_s - WATCHED_S
            if moves is None or row.paused or not watched or row.timing_from_s >= upgrade.begun.timestamp():
                continue
            start_s = max(row.settled_through_s + 1 - row.jitter_offset_s, ceil(row.from_s))
            floors[row.id] = end_s = int(now_s) + 1 - row.jitter_offset_s
            ats = moves.old_fires(start_s, end_s, row.phase)
            slots += [Slot(row.id, at, row.spec_id, row.phase, row.jitter_offset_s) for at in ats]
        _, written = await judge_slots(connection, self._node.book, slots, now_s)
        self._node.count_verdicts(written)
        return floors


def _shift(name: str, data: bytes | None, now_s: int) -> ZoneShift | None:
    """None: what the old data were is not known."""
    try:
        return None if data is None else ZoneShift(name, data, now_s - WATCHED_S - MAX_JITTER_S, now_s + AHEAD_S)
    except ValueError as error:
        warn("tzdata_unreadable", zone=name, error=str(error))
        return None


def _those_that_move(moves: SpecMoves | None, rows: list[Timed]) -> list[Moving]:
    return [Moving(row, moves) for row in rows if moves is None or moves.of(row) is not None]
