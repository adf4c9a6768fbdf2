"""Servers that do not fit are refused at the start, with what to do and without a password."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from bucketd.embedded import Server
from bucketd.store import connect, redis_client
from bucketd.store.config import Settings
from bucketd.store.connect import conninfo, make_pool, postgres_errors
from bucketd.store.errors import ConfigError, StoreUnavailable, UnfitRedis
from bucketd.store.redis_client import check_redis, make_redis
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

SECRET = "hunter2-s3cret"


@pytest_asyncio.fixture
async def client(own_redis: Server) -> AsyncIterator[Redis]:
    """A Redis of this test's own: its policy is changed."""
    client = Redis.from_url(own_redis.url)
    yield client
    await client.aclose()


def of(url: str) -> Settings:
    return Settings.load({}, redis_url=url)


async def test_a_fit_server_passes(client: Redis, own_redis: Server) -> None:
    await check_redis(client, of(own_redis.url))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_an_evicting_policy_is_refused(client: Redis, own_redis: Server, policy: str) -> None:
    await client.config_set("maxmemory-policy", policy)
    with pytest.raises(UnfitRedis, match=rf"noeviction .*got {policy}.*CONFIG SET maxmemory-policy noeviction"):
        await check_redis(client, of(own_redis.url))


async def test_a_server_that_is_too_old(client: Redis, own_redis: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "REDIS_MIN", (99, 0))  # so that this one is
    with pytest.raises(UnfitRedis, match=r"got \d+\.\d+.*upgrade it"):
        await check_redis(client, of(own_redis.url))


async def test_a_server_that_is_not_there() -> None:
    settings = of(f"redis://:{SECRET}@127.0.0.1:1/0")
    client = make_redis(settings)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1.*check BUCKETD_REDIS_URL") as caught:
        await check_redis(client, settings)
    await client.aclose()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["", "http://cache/0", "cache:6379"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected .*BUCKETD_REDIS_URL"):
        make_redis(of(url))


@pytest.mark.parametrize("dsn", ["", f"postgresql://app:{SECRET}@db:port/x?no=such", f"dbname password={SECRET}"])
def test_a_dsn_that_is_none(dsn: str) -> None:
    with pytest.raises(ConfigError, match=r"expected .*BUCKETD_DSN") as caught:
        conninfo(Settings.load({}, dsn=dsn))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_what_the_user_asked_for_is_kept_beside_our_time_outs(dsn: str) -> None:
    settings = Settings.load(
        {}, dsn=f"{dsn}&options=-c%20work_mem%3D7MB" if "?" in dsn else f"{dsn}?options=-c%20work_mem%3D7MB"
    )
    with psycopg.connect(conninfo(settings, application="asked")) as connection:
        shown = [
            connection.execute(f"show {name}".encode()).fetchone()
            for name in ("work_mem", "statement_timeout", "lock_timeout", "timezone", "application_name")
        ]
    assert shown == [("7MB",), ("5s",), ("2s",), ("UTC",), ("asked",)]


async def test_a_hot_pool_never_changes_its_plans(settings: Settings) -> None:
    async with make_pool(settings, application="hot", size=1, hot=True) as pool, pool.connection() as connection:
        for name in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            row = await (await connection.execute(f"show {name}".encode())).fetchone()
            assert row == ("off",)
        assert connection.autocommit


async def test_what_a_restart_has_ended_costs_nobody_a_statement(settings: Settings, dsn: str) -> None:
    async with make_pool(settings, application="ended", size=3) as pool:
        await pool.wait()
        with psycopg.connect(dsn, autocommit=True) as other:
            ended = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'ended'"
            assert len(other.execute(ended).fetchall()) == 3
        for _ in range(6):
            async with pool.connection() as connection:
                await connection.execute("select 1")


async def test_a_pool_that_gave_up_begins_anew_for_who_waits(
    settings: Settings, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "RECONNECT_S", 1.2)
    async with Proxy(dsn) as proxy:
        through = settings.model_copy(update={"dsn": Settings.load({}, dsn=proxy.url).dsn})
        async with make_pool(through, application="anew", size=1) as pool:

            async def use() -> None:
                async with pool.connection(timeout=30) as connection:
                    await connection.execute("select 1")

            await use()
            proxy.refuse()
            proxy.cut_now()
            waiting = asyncio.create_task(use())
            three_a_time = 3  # tries until it gives up
            await wait_until(lambda: pool.get_stats().get("connections_errors", 0) > three_a_time, 10, "further tries")
            proxy.refuse(False)
            await asyncio.wait_for(waiting, 8)


def test_several_hosts_mean_the_primary() -> None:
    both = conninfo(Settings.load({}, dsn="postgresql://a@one,two/x"))
    assert "target_session_attrs=read-write" in both
    assert "target_session_attrs" not in conninfo(Settings.load({}, dsn="postgresql://a@one/x"))
    asked = conninfo(Settings.load({}, dsn="postgresql://a@one,two/x?target_session_attrs=any"))
    assert "target_session_attrs=any" in asked


async def test_why_a_pool_does_not_open_is_told(settings: Settings, dsn: str) -> None:
    wrong = settings.model_copy(update={"dsn": Settings.load({}, dsn=f"{dsn}_not_there").dsn})
    pool = make_pool(wrong, application="wrong", size=1)
    with pytest.raises(StoreUnavailable, match=r"database .* does not exist"), postgres_errors(wrong):
        await pool.open(wait=True, timeout=0.5)
    await pool.close()
