"""After a promotion: who still reaches the old primary gives up there, and connections find the new one."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from bucketd.cli.checks import Verdict
from bucketd.cli.checks_postgres import postgres_checks
from bucketd.runner.heartbeat import Heartbeat
from bucketd.scheduler.node import Scheduler
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool
from bucketd.store.keys import PARTITIONS, Keys
from bucketd.store.redis_client import make_redis
from bucketd.store.timelines import OldPrimary, refuse_old
from tests.support.postgres_pair import PostgresPair, postgres_pair
from tests.support.waiting import wait_until

READ_ONLY = "alter system set default_transaction_read_only = {}"
DENIED = psycopg.errors.ReadOnlySqlTransaction


@pytest.fixture(scope="module")
def parted(servers: Path) -> Iterator[PostgresPair]:
    """Two primaries: the standby was promoted, and the first server lives and takes writes."""
    with postgres_pair(servers) as pair:
        pair.cut_replication()
        pair.promote()
        yield pair


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = make_redis(Settings.load({}, redis_url=redis_url))
    yield client
    await client.aclose()


def settings_of(dsn: str, redis_url: str, prefix: str) -> Settings:
    return Settings.load({}, dsn=dsn, redis_url=redis_url, redis_prefix=prefix)


@pytest.mark.long
async def test_a_node_gives_everything_to_those_on_the_new_one(
    parted: PostgresPair, redis_url: str, prefix: str
) -> None:
    nodes = [Scheduler(settings_of(dsn, redis_url, prefix)) for dsn in (parted.primary_dsn(), parted.standby_dsn())]
    behind, ahead = nodes
    for node in nodes:
        await node.open()
    try:
        assert (await behind.ownership.run_once()).owned == PARTITIONS, "it is the only one: nobody has left it behind"
        await ahead.ownership.run_once()
        backends = {await _backend(behind)}
        with pytest.raises(OldPrimary, match="expected timeline 2, on which others work, got 1"):
            await behind.ownership.run_once()
        assert not behind.node.owned
        assert await _backend(behind) not in backends, "it did not look for the new one"
        assert (await ahead.ownership.run_once()).owned == PARTITIONS
        with pytest.raises(OldPrimary):
            await behind.ownership.run_once()
    finally:
        for node in nodes:
            await node.close()


async def _backend(scheduler: Scheduler) -> int:
    async with scheduler.node.pool.connection() as connection:
        return connection.info.backend_pid


@pytest.mark.long
async def test_a_runner_claims_and_calls_nothing_there(
    parted: PostgresPair, redis_url: str, redis: Redis, prefix: str
) -> None:
    keys = Keys(prefix)
    settings = settings_of(parted.primary_dsn(), redis_url, prefix)
    async with make_pool(settings, application="test", size=1) as pool:
        heartbeat = Heartbeat(settings, pool, lambda history: refuse_old(redis, keys, history))
        await heartbeat.run_once()
        assert heartbeat.believed()
        newer = parted.on(parted.standby, "select bucketd.history()")[0][0]
        await refuse_old(redis, keys, newer)
        with pytest.raises(OldPrimary):
            await heartbeat.run_once()
        assert not heartbeat.believed()
        with pytest.raises(OldPrimary):  # nor does a new incarnation begin
            await heartbeat.run_once()
        assert not heartbeat.believed()


async def test_what_is_remembered(redis: Redis, prefix: str) -> None:
    keys, database = Keys(prefix), f"1/{uuid.uuid4().int % 100_000}"
    await refuse_old(redis, keys, f"{database}/00000002")
    await refuse_old(redis, keys, "1/0/00000001")  # another database
    for _ in range(2):
        with pytest.raises(OldPrimary):
            await refuse_old(redis, keys, f"{database}/00000001")
    await refuse_old(redis, keys, f"{database}/0000000A")
    with pytest.raises(OldPrimary):
        await refuse_old(redis, keys, f"{database}/00000009")
    assert 0 < await redis.pttl(keys.timeline(database)) <= 60_000


@pytest.mark.long
async def test_a_pool_leaves_a_primary_that_takes_no_more_writes(
    parted: PostgresPair, redis_url: str, prefix: str
) -> None:
    """With both named it finds the other one. The first one goes on to answer, as after a switch-over by hand."""
    async with make_pool(settings_of(parted.dsn, redis_url, prefix), application="test", size=2) as pool:

        async def port() -> int:
            async with pool.connection() as connection:
                await connection.execute("update bucketd.cluster set clock_offset = clock_offset")
                return connection.info.port

        async def port_if_any() -> int | None:
            try:
                return await port()
            except DENIED:
                return None

        assert await port() == parted.primary.port
        parted.on(parted.primary, READ_ONLY.format("on"))
        parted.on(parted.primary, "select pg_reload_conf()")
        try:
            await wait_until(lambda: _is_read_only(parted), 10, "the first server to take no more writes")
            found = [await port_if_any() for _ in range(4)]
            assert set(found[2:]) == {parted.standby.port}, "each connection may fail once"
            assert found[0] is None
        finally:
            parted.on(parted.primary, "alter system reset default_transaction_read_only")
            parted.on(parted.primary, "select pg_reload_conf()")


def _is_read_only(pair: PostgresPair) -> bool:
    return pair.on(pair.primary, "show default_transaction_read_only") == [("on",)]


@pytest.mark.long
@pytest.mark.long
async def test_a_pool_refuses_a_standby(servers: Path, redis_url: str, prefix: str) -> None:
    with postgres_pair(servers) as pair:
        settings = settings_of(pair.standby_dsn(), redis_url, prefix)
        pool = make_pool(settings, application="test", size=1)
        await pool.open()
        with pytest.raises(psycopg.OperationalError):
            async with pool.connection(timeout=1):
                pass
        checks = {check.name: check for check in await asyncio.to_thread(lambda: list(postgres_checks(settings)))}
        assert checks["primary"].verdict is Verdict.FAIL
        pair.promote()
        async with pool.connection(timeout=20) as connection:
            assert connection.info.port == urlsplit(pair.standby_dsn()).port
        await pool.close()
