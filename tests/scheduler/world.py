"""One or more scheduler nodes in the test's own loop, a stand-in for a runner, and the cluster's clock to move by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

import psycopg
from redis.asyncio import Redis

from bucketd.scheduler import settler as settling
from bucketd.scheduler.node import Scheduler
from bucketd.store import confirm, partitions, queues, runners
from bucketd.store.claims import new_claim
from bucketd.store.clock import Clock
from bucketd.store.config import Settings
from bucketd.store.fires import ASKED, FIRE, Fire, decode_message, unpack
from bucketd.store.keys import PARTITIONS, Keys
from bucketd.store.redis_client import make_redis
from tests.support.rows import Rows

LEASE = {"lease_ttl_s": 30.0, "lease_renew_s": 1.0, "lease_margin_s": 1.0}  # a busy machine must not lose it


class World:
    """Times are epoch seconds of the cluster's clock. `minute`: the first second of the minute in which the test began."""

    def __init__(self, settings: Settings, connection: psycopg.Connection[Any]) -> None:
        self.settings = settings
        self.rows = Rows(connection)
        self.redis: Redis = make_redis(settings)
        self.keys = Keys(settings.redis_prefix)
        self.schedulers: list[Scheduler] = []
        self.minute = 0
        self._runner: UUID | None = None
        self.begin()

    def begin(self, second: float = 1.0) -> None:
        """The clock shows this second of a minute, and everything before the minute is settled."""
        now = self.rows.now()
        self.minute = (int(now) // 60 + 1) * 60
        self.rows.turn_clock(self.minute + second - now)
        self.rows.sql(
            "update bucketd.partitions set settled_through = to_timestamp(%s), feed_snapshot = pg_current_snapshot()",
            self.minute - 1,
        )

    async def scheduler(self, *, own: bool = True, **changes: Any) -> Scheduler:
        """A new node, with everything that the ring gives it."""
        scheduler = Scheduler(self.settings.model_copy(update={**LEASE, **changes}))
        self.schedulers.append(scheduler)
        await scheduler.open()
        if own:
            await scheduler.ownership.run_once()
        return scheduler

    async def close(self) -> None:
        for scheduler in self.schedulers:
            await scheduler.close()
        await self.redis.aclose()

    async def turn_to(self, at_s: float, *others: Scheduler) -> None:
        """Moves the cluster's clock to an instant; nodes follow, and those of `others` too if they are not ours."""
        self.rows.turn_clock(at_s - self.rows.now())
        for scheduler in (*self.schedulers, *others):
            node = scheduler.node
            node.clock = Clock()  # else a reading that took long on a busy machine would be ignored
            async with node.pool.connection() as connection:
                await partitions.read_clock(connection, node.clock)

    async def drain(self, scheduler: Scheduler) -> int:
        """Drains until nothing more is due; fires moved."""
        moved = 0
        while (report := await scheduler.drainer.run_once()).fires:
            moved += report.fires
        return moved

    async def buckets(self) -> dict[int, list[tuple[int, Fire]]]:
        """(due in ms, fire) of all buckets by partition, in order."""
        found: dict[int, list[tuple[int, Fire]]] = {}
        async for key in self.redis.scan_iter(match=f"{self.keys.prefix}:*:bucket:*", count=1_000):
            partition = int(key.decode().split(":")[-2])
            members: list[Any] = await self.redis.zrange(key, 0, -1, withscores=True)
            for member, score in members:
                found.setdefault(partition, []).append((int(score), unpack(member)[0]))
        return {partition: sorted(fires) for partition, fires in found.items()}

    async def planned(self, id: UUID) -> list[int]:
        """Instants of a schedule that are in buckets."""
        fires = (await self.buckets()).get(id.bytes[15], [])
        return [fire.scheduled_at_s for _, fire in fires if fire.schedule_id == id.bytes]

    async def consume(self, *, confirm_fires: bool = True) -> list[Fire]:
        """Takes what is in the queues as a runner does: confirmed (or, as after a refusal, not), then acknowledged."""
        await queues.make_groups(self.redis, self.keys.queues)
        taken: list[Fire] = []
        while entries := await queues.read(self.redis, "stand-in", self.keys.queues, count=1_000, block_ms=1):
            packed = [fires for entry in entries if entry.raw for _, fires in [decode_message(entry.raw)]]
            taken += [fire for one in packed for fire in unpack(one)]
            if confirm_fires:
                await self._confirm([one[i : i + FIRE.size] for one in packed for i in range(0, len(one), FIRE.size)])
            done: dict[str, list[bytes]] = {}
            for entry in entries:
                done.setdefault(entry.stream, []).append(entry.entry_id)
            await queues.acknowledge(self.redis, done)
        return taken

    async def _confirm(self, fires: list[bytes]) -> None:
        dsn = self.settings.dsn.get_secret_value()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            if self._runner is None:
                self._runner = uuid4()
                await runners.join(connection, self._runner, host="stand-in", pid=1)
            self.rows.sql(
                "update bucketd.runners set heartbeat_at = bucketd.bucketd_now() where runner_id = %s", self._runner
            )
            arrays = confirm.columns([ASKED.unpack(fire) for fire in dict.fromkeys(fires)])
            await confirm.confirm(connection, self._runner, new_claim(), arrays, dead_after_s=30, again=False)

    async def settle(self, scheduler: Scheduler) -> settling.Report:
        """Settles until nothing more is closable; the sum of the reports."""
        total = settling.Report(0, 0, 0, 0)
        while (report := await scheduler.settler.run_once()).partitions:
            pairs = zip(_figures(total), _figures(report), strict=True)
            total = settling.Report(*(a + b for a, b in pairs))
        return total

    async def lose_fires(self, scheduler: Scheduler) -> None:
        """What is planned and due goes the way of a refusal: out of Redis, and into no row."""
        await self.drain(scheduler)
        await self.consume(confirm_fires=False)

    def settled(self, partitions_: Iterable[int] = range(PARTITIONS)) -> set[int]:
        """Watermarks of these partitions."""
        found = self.rows.sql(
            "select distinct extract(epoch from settled_through)::bigint from bucketd.partitions"
            " where partition_id = any(%s)",
            list(partitions_),
        )
        return {row[0] for row in found}

    def everything(self) -> list[tuple[Any, ...]]:
        """All that settling may write: runs and floors."""
        return [
            *self.rows.sql(
                "select schedule_id, scheduled_at, status::text, origin::text, missed, reason, background, wake_at"
                " from bucketd.runs order by 1, 2"
            ),
            *self.rows.sql("select id, floor from bucketd.schedules order by 1"),
        ]


def _figures(report: settling.Report) -> tuple[int, int, int, int]:
    return report.partitions, report.missing, report.written, report.owed
