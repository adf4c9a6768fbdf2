"""Ownership: lease -> epoch -> fence. Keeps I9: no effect of an old epoch after a newer one, but absorbed duplicates.

A lease in Redis says who should work on a partition, a number from Postgres (the epoch) says whose work counts, and the fence in
Redis lets every script compare it. A lease is believed until attempt start + TTL - margin, by a clock that goes on while the
machine sleeps; on doubt it is given up. If the process dies, its leases expire and others take over within TTL + 2 s; what fell
due meanwhile is still in the buckets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from os import getpid
from socket import gethostname

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.partition import Partition
from bucketd.scheduler.release import unfit
from bucketd.scheduler.ring import owners
from bucketd.store import buckets, leases, members, partitions
from bucketd.store.buckets import BucketId
from bucketd.store.clock import monotonic
from bucketd.store.failpoint import reach
from bucketd.store.fires import version_to_write
from bucketd.store.keys import PARTITIONS
from bucketd.store.log import event, warn
from bucketd.store.timelines import OldPrimary, refuse_old

LOOK_BACK_S = 120  # a bucket is deleted 2 min past its minute, so planning further back would be in vain


@dataclass(frozen=True, slots=True)
class Report:
    """What one look at the ring did. `unowned_s`: how long what was taken had been nobody's, the longest; None: nobody said."""

    nodes: int
    owned: int
    taken: int
    released: int
    lost: int
    unowned_s: float | None = None


class Ownership:
    """Takes, keeps and gives up partitions as the ring says."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._renewed_at = float("-inf")
        self._suspects: set[int] = set()
        self._distrusted: set[int] = set()  # taken in a history of Postgres that is over
        self._members = members.Members(())
        self._wanted: set[int] = set()
        self._turn = asyncio.Lock()
        self._left = False
        self.looked_at = float("-inf")  # when both stores had answered a whole look, by `monotonic()` ..
        self.nodes = 0  # .. and how many nodes it saw
        self._born_at = monotonic()
        self._name = node.settings.node_name or gethostname()
        self._unowned_s: float | None = None  # of what was taken in this look

    async def run_once(self) -> Report:
        """One look: clock, membership, renewal, release, take; nothing after `leave`. Raises what the stores raise."""
        async with self._turn:
            if self._left:
                return Report(0, 0, 0, 0, 0)
            report = await self._look()
            self.looked_at, self.nodes = monotonic(), report.nodes
            return report

    async def _look(self) -> Report:
        node, settings = self._node, self._node.settings
        async with node.pool.connection() as connection:
            node.tzdata, history, announced = await partitions.read_clock(connection, node.clock)
        self._write_as_read(announced)
        if unfit(node.tzdata):  # before a lease is renewed: when the last one is over, nobody plans by the older data
            return Report(0, 0, 0, 0, 0)
        if node.compare:
            await self._refuse_old(history)
        if node.history not in (None, history):
            warn("postgres_history_changed", before=node.history, now=history, partitions=len(node.owned))
            self._distrusted.update(node.owned)
        node.history = history
        if not node.compare:
            return await self._own_everything()
        now_s, lost = node.clock.now(), 0
        due = monotonic() - self._renewed_at >= settings.lease_renew_s * 0.95
        if not due:
            ring = await members.read(node.redis, node.keys, now_s)
            due = node.id.hex not in ring.nodes  # Redis lost the ring with everything else
        if due:
            lost = await self._renew()
            ring = await members.beat(
                node.redis, node.keys, node.id, now_s, settings.lease_ttl_s, self._info(), name=self._name
            )
        lost += self._drop_expired()
        if node.id.hex in ring.nodes and node.id.hex not in self._members.nodes:
            await members.announce(node.redis, node.keys, node.id)  # we have joined: others need not wait for their next look
        if ring != self._members:  # a ring of 20 nodes takes 5 ms to build: once a change, not once a second
            self._members = ring
            self._wanted = {p for p, owner in owners(ring).items() if owner == node.id.hex}
        wanted = self._wanted
        released = await self.release([p for p in node.owned if p not in wanted])
        await self._retake_suspects()
        self._unowned_s = None
        taken = await self._take([p for p in sorted(wanted) if p not in node.owned])
        report = Report(len(ring.nodes), len(node.owned), taken, released, lost, self._unowned_s)
        node.count("taken", taken)
        node.count("released", released)
        node.count("lost", lost)
        if taken or released or lost:
            said = {name: value for name, value in asdict(report).items() if value is not None}
            event("ring", **said)
        return report

    def _write_as_read(self, announced: int | None) -> None:
        """Messages of the newest version that every live runner reads. One that comes with an older release may find some that are newer:
        it leaves them to settling."""
        node = self._node
        version = version_to_write(announced, node.settings.message_version)
        if version != node.message_version:
            event("message_version", before=node.message_version, now=version)
            node.message_version = version

    async def _refuse_old(self, history: str) -> None:
        """On a primary that others have left behind: gives everything up, so that they take it, and looks for the new one."""
        node = self._node
        try:
            await refuse_old(node.redis, node.keys, history)
        except OldPrimary:
            await self._abandon()
            await node.pool.drain()
            raise

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
            freed = self._freed(ids)
            await leases.release(node.redis, node.keys, ids, node.id)
            await members.announce(node.redis, node.keys, node.id, freed)
            async with node.pool.connection() as connection:  # last: nobody is to wait for a name that people read
                await partitions.disown(connection, node.id, ids)
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
        ids = await self._abandon()
        if node.compare:
            async with node.pool.connection() as connection:
                await partitions.disown(connection, node.id, ids)

    async def _abandon(self) -> list[int]:
        """Gives up what is owned, and the place in the ring; the partitions."""
        node = self._node
        ids = list(node.owned)
        for partition in node.owned.values():
            partition.owned = False
        node.owned.clear()
        if node.compare:
            freed = self._freed(ids)
            await leases.release(node.redis, node.keys, ids, node.id)
            await members.leave(node.redis, node.keys, node.id, freed)
        return ids

    async def _renew(self) -> int:
        node, settings = self._node, self._node.settings
        attempt_start = monotonic()
        lost, unknown = await leases.renew(node.redis, node.keys, list(node.owned), node.id, settings.lease_ttl_s)
        self._renewed_at = float("-inf") if unknown else attempt_start  # again at the next look
        self._drop(lost)
        now, silent = monotonic(), set(unknown)
        for partition in node.owned.values():
            if partition.id in silent:  # the master of its shard fails: the lease runs on, and ends by itself
                continue
            if partition.believed_until <= now:
                partition.feed_applied = False  # the planner passed it over: what it did not follow comes again
            partition.believed_until = attempt_start + settings.lease_ttl_s - settings.lease_margin_s
        return len(lost)

    def _drop(self, ids: Iterable[int]) -> None:
        """They are not ours any more, whoever finds out first: while Redis was asked, a drain may have met a newer owner's fence."""
        for partition_id in ids:
            partition = self._node.owned.pop(partition_id, None)
            if partition is not None:
                partition.owned = False

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
        lost = [p for p in self._suspects if p in node.owned]
        suspects = list({*lost, *(p for p in self._distrusted if p in node.owned)})
        self._suspects.clear()
        if not suspects:
            return
        if lost:
            warn("redis_lost_data", partitions=len(lost))
            node.count("lost_data", len(lost))
        attempt_start = monotonic()
        gone = {p for ids in await leases.renew(node.redis, node.keys, suspects, node.id, settings.lease_ttl_s) for p in ids}
        self._drop(suspects)
        self._distrusted.clear()  # what is not ours now will be taken, and Postgres knows that it was of another history
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
        reach("in_take_over")
        refused = await leases.raise_fences(node.redis, node.keys, {t.partition: t.epoch for t in taken}, node.id)
        now = int(node.clock.now())
        # Redis has what the last owner planned if its epoch still stands at the fence and it did plan; what it drained need not come
        # again.
        intact = {t.partition for t in taken if _planned_by_last_owner(stand[t.partition], t)}
        await self._empty([t for t in taken if not t.same_history and t.partition not in refused], now)
        for one in taken:
            if one.partition in refused:
                continue
            plan_from_s = now if one.partition in intact else max(one.settled_through_s + 1, now - LOOK_BACK_S)
            partition = Partition(
                one.partition, one.epoch, node.id.hex, believed_until, one.settled_through_s, one.feed_snapshot,
                plan_from_s=plan_from_s, planned_until=plan_from_s // 60,
            )  # fmt: skip
            for minute in range((now - LOOK_BACK_S) // 60, now // 60 + 1):
                for crowd in (False, True):  # may hold what the last owner did not come to
                    partition.expect(minute, minute * 60_000, 0, crowd=crowd)
            node.owned[one.partition] = partition
        node.wake_planner.set()
        node.wake_drainer.set()
        node.wake_settler.set()
        freed = await members.end_of_freedom(node.redis, node.keys, ids)
        for partition_id, before in freed.items():
            node.traffic.inherit(partition_id, before.per_min, before.measured_s, monotonic())
        if freed:
            self._unowned_s = node.clock.now() - min(before.since_s for before in freed.values())
        return len(taken) - len(refused)

    async def _empty(self, taken: list[partitions.Taken], now: int) -> None:
        """Deletes what was planned in another history of Postgres: by edits that may be lost, whose version numbers are given out
        again. Such a fire would be good, at an instant that nobody wants. All of it is planned again."""
        if not taken:
            return
        minutes = range((now - LOOK_BACK_S) // 60, (now + self._node.settings.horizon_s) // 60 + 2)
        old = [BucketId(t.partition, minute, crowd) for t in taken for minute in minutes for crowd in (False, True)]
        await buckets.delete(self._node.redis, self._node.keys, old)
        async with self._node.pool.connection() as connection:  # only now: whoever comes after a crash before deletes again
            await partitions.trust(connection, taken[0].history, [t.partition for t in taken])

    async def _own_everything(self) -> Report:
        """The test of safety without ownership: every node believes that it owns every partition, for ever."""
        node = self._node
        if self._distrusted:
            node.owned.clear()
            self._distrusted.clear()
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

    def _freed(self, ids: list[int]) -> dict[int, members.Freed]:
        node = self._node
        loads = {load.partition: load for load in node.traffic.loads(monotonic())}
        measured = {p: (loads[p].per_min, loads[p].measured_s) if p in loads else (0.0, 0) for p in ids}
        return {p: members.Freed(node.clock.now(), per_min, since_s) for p, (per_min, since_s) in measured.items()}

    def _info(self) -> dict[str, object]:
        node, now = self._node, monotonic()
        node.traffic.own(node.owned, now)
        return {
            "host": gethostname(), "pid": getpid(), "age_s": int(now - self._born_at), "partitions": len(node.owned),
            "late_ms": node.traffic.lateness(now), "load": node.traffic.loads(now), **node.counts,
        }  # fmt: skip


def _planned_by_last_owner(before: leases.Standing | None, taken: partitions.Taken) -> bool:
    return before is not None and before.epoch == taken.epoch - 1 and before.plan_seq > 0 and taken.same_history
