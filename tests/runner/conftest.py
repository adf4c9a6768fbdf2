"""A world for runner tests: schedules by SQL, fires put into the queue by hand, and a runner in this loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
import redis
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from bucketd.runner.breaker import Rules
from bucketd.runner.loop import Runner
from bucketd.store import fires
from bucketd.store.config import Settings
from bucketd.store.keys import GROUP, Keys
from tests.support.target import Target
from tests.support.waiting import wait_until

HOUR_AGO = "-1 hour"


class World:
    """One test's stores. Schedules are born an hour ago, so that a fire of the last minutes is a good one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = Keys(settings.redis_prefix)
        self.redis = redis.Redis.from_url(settings.redis_url.get_secret_value())
        self.db = psycopg.connect(settings.dsn.get_secret_value(), autocommit=True, row_factory=dict_row)
        self._names = 0
        self.spec = self.value(
            'insert into bucketd.specs (kind, rule, every_s) values (\'every\', \'{"kind":"every","every_s":60}\', 60)'
            " on conflict (md5(rule)) do update set rule = excluded.rule returning spec_id"
        )

    def close(self) -> None:
        self.redis.close()
        self.db.close()

    def sql(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of a statement."""
        cursor = self.db.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, *parameters: Any) -> Any:
        """The first column of the first row."""
        return next(iter(self.sql(statement, *parameters)[0].values()))

    @property
    def now_s(self) -> int:
        """The cluster's time, whole seconds."""
        return int(self.value("select floor(extract(epoch from bucketd.bucketd_now()))::bigint"))

    def shift_clock(self, interval: str) -> None:
        """Sets the cluster's clock this far from Postgres's."""
        self.sql("update bucketd.cluster set clock_offset = %s::interval", interval)

    def target(self, url: str, **columns: Any) -> int:
        """A target without any delay before a retry."""
        self._names += 1
        values = {"name": f"target-{self._names}", "url": url, "retry_base_s": 0.0, "retry_cap_s": 0.0} | columns
        return int(self._insert("targets", "target_id", values))

    def schedule(self, target_id: int, **columns: Any) -> UUID:
        """A schedule that was created an hour ago; its runs may overlap, so that a test of something else gets by with one."""
        self._names += 1
        values = {
            "name": f"schedule-{self._names}",
            "spec_id": self.spec,
            "target_id": target_id,
            "overlap": "allow",
        } | columns
        offset = self.value("select clock_offset from bucketd.cluster")
        self.shift_clock(HOUR_AGO)
        found = self._insert("schedules", "id", values)
        self.sql("update bucketd.cluster set clock_offset = %s", offset)
        assert isinstance(found, UUID)
        return found

    def _insert(self, table: str, key: str, values: dict[str, Any]) -> Any:
        plain = {name: Jsonb(value) if isinstance(value, dict) else value for name, value in values.items()}
        return self.value(
            f"insert into bucketd.{table} ({', '.join(plain)}) values ({', '.join(['%s'] * len(plain))}) returning {key}",
            *plain.values(),
        )

    def run(self, schedule: UUID, at_s: float, status: str = "deferred", **columns: Any) -> None:
        """A row of runs, due to be woken now unless said otherwise."""
        row = self.sql("select tenant, target_id from bucketd.schedules where id = %s", schedule)
        known = row[0] if row else {"tenant": "default", "target_id": 1}
        values = {"schedule_id": schedule, "status": status, "origin": "settle", **known, **columns}
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        wake = "" if "wake_at" in values else ", wake_at"
        self.sql(
            f"insert into bucketd.runs (scheduled_at, {names}{wake}) values (to_timestamp(%s), {marks}"
            f"{', bucketd.bucketd_now()' if wake else ''})",
            at_s,
            *values.values(),
        )

    def fire(self, schedule: UUID, at_s: int, *, version: int = 1, before_s: int = 60, after_s: int = 60) -> bytes:
        """A packed fire."""
        return schedule.bytes + version.to_bytes(4, "big") + bytes(2) + fires.tail(at_s, before_s, after_s)

    def put(self, packed: Iterable[bytes]) -> None:
        """One queue message with these fires."""
        members = list(packed)
        self.put_raw(fires.encode_message(members[0][15], members), members[0][15])

    def put_raw(self, message: bytes, partition: int = 0, field: str = "m") -> None:
        """One queue message as it is."""
        self.redis.xadd(self.keys.queue(partition), {field: message})

    def runs(self, **where: Any) -> list[dict[str, Any]]:
        """Rows of runs, oldest first."""
        clause = " and ".join(f"{name} = %s" for name in where) or "true"
        return self.sql(
            f"select * from bucketd.runs where {clause} order by scheduled_at, schedule_id", *where.values()
        )

    def statuses(self) -> dict[str, int]:
        """How many runs have each status."""
        rows = self.sql("select status::text, count(*)::int as n from bucketd.runs group by 1")
        return {row["status"]: row["n"] for row in rows}

    def queued(self) -> int:
        """Messages in all queues, pending ones included."""
        return sum(int(self.redis.xlen(stream)) for stream in self.keys.queues)

    def pending(self) -> int:
        """Messages that were read and not acknowledged."""
        found = 0
        for stream in self.keys.queues:
            if self.redis.exists(stream):
                groups: Any = self.redis.xinfo_groups(stream)
                found += sum(group["pending"] for group in groups if group["name"] == GROUP.encode())
        return found

    async def until(self, statuses: dict[str, int], timeout_s: float = 10) -> None:
        """Until the runs have exactly these statuses."""
        await wait_until(lambda: self.statuses() == statuses, timeout_s, f"{statuses}; have {self.statuses()}")

    async def until_quiet(self, timeout_s: float = 10) -> None:
        """Until nothing is queued or claimed."""

        def quiet() -> bool:
            return self.queued() == 0 and not self.sql("select 1 from bucketd.claims")

        await wait_until(quiet, timeout_s, f"an empty queue and no claim: {self.queued()} messages")

    @asynccontextmanager
    async def runner(self, *, breaker_rules: Rules | None = None, **settings: Any) -> AsyncIterator[Runner]:
        """A runner in this loop; stopped gracefully at the end, and its own failure is the test's."""
        runner = Runner(self.settings.model_copy(update=settings), breaker_rules=breaker_rules)
        task = asyncio.create_task(runner.run())
        started = asyncio.create_task(runner.started.wait())
        await asyncio.wait({task, started}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if task.done():
            task.result()
        assert runner.started.is_set()
        try:
            yield runner
        finally:
            runner.stop()
            await asyncio.wait_for(task, 40)


@pytest.fixture
def world(settings: Settings) -> Iterator[World]:
    """Quick reactions: what a test waits for should come in milliseconds."""
    quick = settings.model_copy(
        update={"wake_poll_s": 0.05, "reclaim_idle_s": 0.5, "drain_timeout_s": 5.0, "concurrency": 32}
    )
    made = World(quick)
    yield made
    made.close()


@pytest.fixture
def hook(world: World, target: Target) -> int:
    """A single-run target that is recorded."""
    return world.target(target.url)
