"""The stores' faults do what they say, and are made good; on a stage without anybody but the suite."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.chaos import disk
from tests.chaos.ancient import PUT, schedule_id
from tests.chaos.fault import Fault, Shape
from tests.chaos.faults import postgres, redis
from tests.chaos.stage import DAY_S, Stage
from tests.support.waiting import wait_until

WAIT_S = 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(servers: Path) -> AsyncIterator[Stage]:
    """One for all tests of the module."""
    async with Stage(Shape(1, 1), servers / "chaos-faults", small_disks=disk.missing() is None) as made:
        yield made


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
no_disk = pytest.mark.skipif(disk.missing() is not None, reason=str(disk.missing()))


async def redis_writes(stage: Stage, value: str) -> bool:
    """Whether Redis takes a write through the way of a node, in time."""
    async with Redis.from_url(stage.link("node 0", "redis").url, socket_timeout=WAIT_S) as client:
        with suppress(RedisError, OSError):
            return bool(await client.set("probe", value))
    return False


async def redis_reads(stage: Stage) -> str | None:
    """What was written last."""
    async with Redis.from_url(stage.link("node 0", "redis").url, socket_timeout=WAIT_S) as client:
        value = await client.get("probe")
    return value.decode() if isinstance(value, bytes) else None


async def postgres_writes(stage: Stage, value: int) -> bool:
    """Whether Postgres takes a write of some size through the way of a node, in time."""
    try:
        async with (
            asyncio.timeout(WAIT_S),
            await psycopg.AsyncConnection.connect(stage.link("node 0", "postgres").url) as own,
        ):
            await own.execute("create table if not exists public.probe (value int, filler text)")
            await own.execute(
                "insert into public.probe select %s, repeat('x', 1000) from generate_series(1, 100)", (value,)
            )
    except (psycopg.Error, TimeoutError, OSError):
        return False
    return True


REDIS: dict[str, tuple[Fault, bool, str | None]] = {  # whether a write is taken meanwhile, what is there afterwards
    "flushed": (redis.Flushed(0.0), True, "during"),
    "restarted empty": (redis.RestartedEmpty(0.1), False, None),
    "asleep": (redis.Asleep(0.1), False, "before"),
    "writes paused": (redis.WritesPaused(2.0), False, "before"),
    "out of memory": (redis.OutOfMemory(0.1), False, "before"),
    "no connections": (redis.NoConnections(0.1), False, "before"),
}


@pytest.mark.parametrize(("fault", "writes", "after"), REDIS.values(), ids=REDIS)
async def test_redis_is_hit_and_made_good(stage: Stage, fault: Fault, writes: bool, after: str | None) -> None:
    assert await redis_writes(stage, "before")
    await fault.inject(stage)
    assert await redis_writes(stage, "during") is writes
    await fault.heal(stage)
    assert await redis_reads(stage) in (
        after,
        "during" if isinstance(fault, redis.Asleep | redis.WritesPaused) else after,
    )
    assert await redis_writes(stage, "after")


async def test_redis_goes_back_in_time(stage: Stage) -> None:
    for fault in (redis.RolledBack(0.1, 0.5), redis.FailedOver(0.1, 0.5)):
        assert await redis_writes(stage, "before")
        under_way = asyncio.create_task(fault.inject(stage))
        changed = 0
        while not under_way.done():  # what is written in the last half a second is lost
            changed += await redis_writes(stage, f"during {changed}")
        await under_way
        await fault.heal(stage)
        left = str(await redis_reads(stage))
        assert changed > 3
        assert left == "before" or int(left.split()[1]) < changed - 3, f"{left} of {changed}"
        assert await redis_writes(stage, "after")


@no_disk
async def test_redis_has_a_full_disk(stage: Stage) -> None:
    fault = redis.DiskFull(0.1)
    assert await redis_writes(stage, "before")
    await fault.inject(stage)
    assert not await redis_writes(stage, "during")
    assert await redis_reads(stage) == "before"
    await fault.heal(stage)
    assert await redis_writes(stage, "after")


POSTGRES: dict[str, tuple[Fault, bool]] = {
    "fast restart": (postgres.Restarted(0.1, postgres.FAST), False),
    "crash": (postgres.Restarted(0.1, postgres.CRASH), False),
    "asleep": (postgres.Asleep(0.1), False),
    "no connections": (postgres.NoConnections(0.1), False),
    "full": (postgres.DiskFull(0.1), False),
}


@pytest.mark.parametrize(("fault", "writes"), POSTGRES.values(), ids=POSTGRES)
async def test_postgres_is_hit_and_made_good(stage: Stage, fault: Fault, writes: bool) -> None:
    if isinstance(fault, postgres.DiskFull) and disk.missing():
        pytest.skip(str(disk.missing()))
    assert await postgres_writes(stage, 1)
    await fault.inject(stage)
    tries = [await postgres_writes(stage, 2) for _ in range(40 if isinstance(fault, postgres.DiskFull) else 1)]
    assert tries[-1] is writes
    await fault.heal(stage)
    assert await postgres_writes(stage, 3)
    assert await stage.one("select count(*) from public.probe where value = 1") >= 100


async def test_backends_are_terminated_and_a_reply_is_lost(stage: Stage) -> None:
    way = stage.link("node 0", "postgres")
    async with await psycopg.AsyncConnection.connect(way.url, autocommit=True) as own:
        await own.execute("create table public.lost as select 1 as x")
        fault = postgres.Terminated(0.1)
        await fault.inject(stage)
        with pytest.raises(psycopg.OperationalError):
            await own.execute("select 1")
        await fault.heal(stage)
    async with await psycopg.AsyncConnection.connect(way.url) as own:
        await own.execute("update public.lost set x = 2")
        fault_ = postgres.ReplyLost("node 0", 0.1)
        healing = asyncio.create_task(fault_.heal(stage))  # it looks for each statement a while; COMMIT comes last
        await wait_until(lambda: way.marker == b"COMMIT", 15, "the turn of COMMIT")
        with pytest.raises(psycopg.OperationalError):
            await own.commit()
        await healing
    assert await stage.one("select x from public.lost") == 2


async def test_a_failover_loses_the_last_commits(stage: Stage) -> None:
    assert await postgres_writes(stage, 10)
    before, fault = stage.dsn, postgres.FailedOver(0.1, 1.0)
    under_way = asyncio.create_task(fault.inject(stage))
    taken = [10]
    while not under_way.done():
        if await postgres_writes(stage, taken[-1] + 1):
            taken.append(taken[-1] + 1)
    await under_way
    assert stage.dsn != before
    left = {value for (value,) in await stage.sql("select distinct value from public.probe")}
    lost = [value for value in taken if value not in left]
    assert lost, "each of them was acknowledged"
    assert lost == list(range(lost[0], lost[-1] + 1)), "one piece of the history"
    assert lost[0] > 10
    (span,) = stage.lost_commits
    assert span.begin_s < stage.now() < span.end_s
    assert await postgres_writes(stage, 3)


async def test_days_are_missing(stage: Stage) -> None:
    days = "select relname from pg_class where relname ~ '^runs_[0-9]{8}$' and relkind = 'r' order by 1"
    await stage.sql("insert into bucketd.targets (name, url) values ('plain', 'http://127.0.0.1:1/plain')")
    await stage.sql(PUT, schedule_id())
    midnight = int(time.time()) // DAY_S * DAY_S
    stage.first_day_s = midnight
    await postgres.DayMissing().inject(stage)
    await postgres.DayDropped().inject(stage)
    today = time.strftime("runs_%Y%m%d", time.gmtime(midnight))
    assert await stage.sql(days) == [(today,)]
    bounds = "select extract(epoch from retention_floor)::bigint, extract(epoch from days_through)::bigint from bucketd.cluster"
    assert await stage.sql(bounds) == [(midnight, midnight + DAY_S)]
    assert sum([await stage.redis.xlen(queue) for queue in stage.keys.queues]) == 2
    await stage.sql("select bucketd.make_days(bucketd.bucketd_now(), bucketd.bucketd_now() + interval '7 days')")
    assert len(await stage.sql(days)) == 8, "what was dropped by retention is not made again, what was never made is"
