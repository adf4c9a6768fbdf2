"""Ownership: lease -> epoch -> fence. Keeps I9: no effect of an old epoch after a newer one, but absorbed duplicates.

A lease in Redis says who should work on a partition, a number from Postgres (the epoch) says whose work counts, and the fence in
Redis lets every script compare it. A lease is believed until attempt start + TTL - margin, by a clock that goes on while the
machine sleeps; on doubt it is given up. If the process dies, its leases expire and others take over within TTL + 2 s; what fell
due meanwhile is still in the buckets.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from os import getpid
from socket import gethostname

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.partition import Partition
from bucketd.scheduler.release import unfit
from bucketd.scheduler.ring import assign
from bucketd.store import leases, members, partitions
from bucketd.store.clock import monotonic
from bucketd.store.keys import PARTITIONS
from bucketd.store.log import event, warn

LOOK_BACK_S = 120  # a bucket is deleted 2 min past its minute, so planning further back would be in vain


@dataclass(frozen=True, slots=True)
class Report:
    """What one look at the ring did."""

    nodes: int
    owned: int
    taken: int
    released: int
    lost: int


class Ownership:
    """Takes, keeps and gives up partitions as the ring says."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._renewed_at = float("-inf")
        self._suspects: set[int] = set()
        self._members = members.Members((), {})
        self._wanted: set[int] = set()
        self._turn = asyncio.Lock()
        self._left = False

    async def run_once(self) -> Report:
        """One look: clock, membership, renewal, release, take; nothing after `leave`. Raises what the stores raise."""
        async with self._turn:
            return Report(0, 0, 0, 0, 0) if self._left else await self._look()

    async def _look(self) -> Report:
        node, settings = self._node, self._node.settings
        async with node.pool.connection() as connection:
            node.tzdata = await partitions.read_clock(connection, node.clock)
        if unfit(node.tzdata):  # before a lease is renewed: when the last one is over, nobody plans by the older data
            return Report(0, 0, 0, 0, 0)
        if not node.compare:
            return await self._own_everything()
        now_s, lost = node.clock.now(), 0
        due = monotonic() - self._renewed_at >= settings.lease_renew_s * 0.95
        if not due:
            ring = await members.read(node.redis, node.keys, now_s)
            due = node.id.hex not in ring.nodes  # Redis lost the ring with everything else
        if due:
            lost = await self._renew()
            ring = await members.beat(node.redis, node.keys, node.id, now_s, settings.lease_ttl_s, self._info())
        lost += self._drop_expired()
        if ring != self._members:  # a ring of 20 nodes takes 5 ms to build: once a change, not once a second
            self._members = ring
            self._wanted = {p for p, owner in assign(ring.nodes, ring.weights).items() if owner == node.id.hex}
        wanted = self._wanted
        released = await self.release([p for p in node.owned if p not in wanted])
        await self._retake_suspects()
        taken = await self._take([p for p in sorted(wanted) if p not in node.owned])
        if taken or released or lost:
            event(
                "ring", nodes=len(self._members.nodes), owned=len(node.owned), taken=taken, released=released, lost=lost
            )
        return Report(len(self._members.nodes), len(node.owned), taken, released, lost)

    def suspect(self, partition: Partition) -> None:
        """Redis lost data of this partition: it is taken over again, under a new epoch, and planned anew."""
        if partition.owned:
            self._suspects.add(partition.id)
            self._node.wake_owner.set()

    def forfeit(self, partition: Partition) -> None:
        """A newer owner stands at the fence: we are a zombie and stop at once."""
        if partition.owned and self._node.owned.get(partition.id) is partition:
            partition.owned = False
            del self._node.owned[partition.id]
            self._node.count("forfeited")
            warn("zombie", partition=partition.id, epoch=partition.epoch)

    async def release(self, ids: list[int]) -> int:
        """Gives partitions back and tells the others, who take them at once. The last batch of each is finished by now."""
        node = self._node
        if not ids:
            return 0
        for partition_id in ids:
            node.owned.pop(partition_id).owned = False
        if node.compare:
            async with node.pool.connection() as connection:
                await partitions.disown(connection, node.id, ids)
            await leases.release(node.redis, node.keys, ids, node.id)
            await members.announce(node.redis, node.keys, node.id)
        return len(ids)

    async def leave(self) -> None:
        """Hands everything over and leaves the ring for good: the others hear of it when the leases are free.

        A look that is under way ends first: it would join the ring again, and take what was just given back.
        """
        async with self._turn:
            self._left = True
            await self._leave()

    async def _leave(self) -> None:
        node = self._node
        ids = list(node.owned)
        for partition in node.owned.values():
            partition.owned = False
        node.owned.clear()
        if not node.compare:
            return
        await leases.release(node.redis, node.keys, ids, node.id)
        await members.leave(node.redis, node.keys, node.id)
        async with node.pool.connection() as connection:
            await partitions.disown(connection, node.id, ids)

    async def _renew(self) -> int:
        node, settings = self._node, self._node.settings
        attempt_start = monotonic()
        lost = await leases.renew(node.redis, node.keys, list(node.owned), node.id, settings.lease_ttl_s)
        self._renewed_at = attempt_start
        for partition_id in lost:
            node.owned.pop(partition_id).owned = False
        now = monotonic()
        for partition in node.owned.values():
            if partition.believed_until <= now:
                partition.feed_applied = False  # the planner passed it over: what it did not follow comes again
            partition.believed_until = attempt_start + settings.lease_ttl_s - settings.lease_margin_s
        return len(lost)

    def _drop_expired(self) -> int:
        now = monotonic()
        expired = [p for p in self._node.owned.values() if p.believed_until <= now]
        for partition in expired:
            partition.owned = False
            del self._node.owned[partition.id]
        return len(expired)

    async def _take(self, ids: list[int]) -> int:
        node, settings = self._node, self._node.settings
        if not ids:
            return 0
        attempt_start = monotonic()
        leased = await leases.take(node.redis, node.keys, ids, node.id, settings.lease_ttl_s)
        return await self._own(leased, attempt_start + settings.lease_ttl_s - settings.lease_margin_s)

    async def _retake_suspects(self) -> None:
        """Same lease, new epoch. A lease that went with the data is taken again first; if another was faster, it is his."""
        node, settings = self._node, self._node.settings
        suspects = [p for p in self._suspects if p in node.owned]
        self._suspects.clear()
        if not suspects:
            return
        warn("redis_lost_data", partitions=len(suspects))
        attempt_start = monotonic()
        gone = set(await leases.renew(node.redis, node.keys, suspects, node.id, settings.lease_ttl_s))
        for partition_id in suspects:
            node.owned.pop(partition_id).owned = False
        again = await leases.take(node.redis, node.keys, gone, node.id, settings.lease_ttl_s) if gone else []
        kept = [p for p in suspects if p not in gone]
        await self._own([*kept, *again], attempt_start + settings.lease_ttl_s - settings.lease_margin_s)

    async def _own(self, ids: list[int], believed_until: float) -> int:
        node = self._node
        if not ids:
            return 0
        stand = await leases.fences(node.redis, node.keys, ids)
        epochs = {p: before.epoch if before else None for p, before in stand.items()}
        async with node.pool.connection() as connection:
            taken = await partitions.take(connection, node.id, epochs)
        refused = await leases.raise_fences(node.redis, node.keys, {t.partition: t.epoch for t in taken}, node.id)
        now = int(node.clock.now())
        for one in taken:
            if one.partition in refused:
                continue
            # Redis has what the last owner planned if its epoch still stands at the fence and it did plan; what it drained need
            # not come again.
            before = stand[one.partition]
            intact = before is not None and before.epoch == one.epoch - 1 and before.plan_seq > 0
            plan_from_s = now if intact else max(one.settled_through_s + 1, now - LOOK_BACK_S)
            partition = Partition(
                one.partition, one.epoch, node.id.hex, believed_until, one.settled_through_s, one.feed_snapshot,
                plan_from_s=plan_from_s, planned_until=plan_from_s // 60,
            )  # fmt: skip
            for minute in range((now - LOOK_BACK_S) // 60, now // 60 + 1):
                partition.expect(minute, minute * 60_000, 0)  # may hold what the last owner did not come to
            node.owned[one.partition] = partition
        node.wake_planner.set()
        node.wake_drainer.set()
        node.wake_settler.set()
        return len(taken) - len(refused)

    async def _own_everything(self) -> Report:
        """The test of safety without ownership: every node believes that it owns every partition, for ever."""
        node = self._node
        if not node.owned:
            async with node.pool.connection() as connection:
                rows = await partitions.watermarks(connection)
            now = int(node.clock.now())
            for partition_id, settled_s, snapshot in rows:
                start = max(settled_s + 1, now - LOOK_BACK_S)
                node.owned[partition_id] = Partition(
                    partition_id, 0, node.id.hex, float("inf"), settled_s, snapshot, start, start // 60
                )
            node.wake_planner.set()
        for partition_id in self._suspects:
            partition = node.owned[partition_id]
            partition.plan_from_s = max(partition.settled_through_s + 1, int(node.clock.now()) - LOOK_BACK_S)
            partition.planned_until = partition.plan_from_s // 60
        self._suspects.clear()
        return Report(1, PARTITIONS, 0, 0, 0)

    def _info(self) -> dict[str, object]:
        return {"host": gethostname(), "pid": getpid(), "partitions": len(self._node.owned), **self._node.counts}
