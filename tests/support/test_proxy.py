"""The proxy does to a connection what it says; the fault tests stand on it."""

import asyncio
import uuid

import psycopg
import pytest
import redis.exceptions
from psycopg.types.json import Jsonb
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

WAIT_S = 10


async def connect(url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5)


def client_of(url: str) -> Redis:
    client: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=5)
    return client


async def count(dsn: str) -> object:
    async with await connect(dsn) as direct:
        row = await (await direct.execute("select count(*) from t")).fetchone()
        assert row is not None
        return row[0]


async def test_forwards_and_cuts(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        await connection.execute("select 1")
        assert proxy.connections == 1
        proxy.cut_now()
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("select 1")
        await wait_until(lambda: proxy.connections == 0, WAIT_S, "the link to end")


async def test_refuses_new_connections_only(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            await connect(proxy.url)
        await connection.execute("select 1")
        proxy.refuse(False)
        async with await connect(proxy.url) as second:
            await second.execute("select 1")


async def test_freezes_and_goes_on(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        proxy.freeze()
        answer = asyncio.ensure_future(connection.execute("select 1"))
        done, _ = await asyncio.wait({answer}, timeout=0.2)
        assert not done
        proxy.freeze(False)
        assert await (await answer).fetchone() == (1,)


@pytest.mark.parametrize("prepare_threshold", [0, None], ids=["prepared", "unprepared"])
async def test_loses_the_reply_of_a_committed_statement(empty_dsn: str, prepare_threshold: int | None) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        connection.prepare_threshold = prepare_threshold
        await connection.execute("create table t (i int)")
        await connection.execute("insert into t values (%s)", (1,))
        lost = proxy.lose_reply_after(b"insert into t")
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("insert into t values (%s)", (2,))
        assert lost.is_set()
        assert await count(empty_dsn) == 2
        async with await connect(proxy.url) as again:  # once only
            await again.execute("insert into t values (%s)", (3,))


@pytest.mark.parametrize("by", ["text", "value"])
async def test_a_first_use_of_a_statement_is_executed_before_its_reply_is_lost(empty_dsn: str, by: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        connection.prepare_threshold = 0  # so that it is first only parsed, in a round trip of its own
        await connection.execute("create table t (i uuid, j jsonb)")
        key = uuid.uuid4()
        lost = proxy.lose_reply_after(b"insert into t" if by == "text" else key.bytes)
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("insert into t values (%b, %s)", (key, Jsonb({"large": "x" * 1_000_000})))
        assert lost.is_set()
        assert await count(empty_dsn) == 1


async def test_a_long_reply_is_read_to_its_end_before_the_cut(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        await connection.execute("create table t (i int)")
        proxy.lose_reply_after(b"returning")
        with pytest.raises(psycopg.OperationalError):
            await connection.execute(
                "insert into t select generate_series(1, 100000) returning repeat('x', 200)"
            )  # 20 MB: a server that is cut in the middle of them rolls back
        assert await count(empty_dsn) == 100_000


async def test_loses_the_reply_to_a_commit(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as proxy, await connect(proxy.url) as connection:
        await connection.execute("create table t (i int)")
        lost = proxy.lose_reply_after(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            async with connection.transaction():
                await connection.execute("insert into t values (1)")
        assert lost.is_set()
        assert await count(empty_dsn) == 1


async def test_redis_cut_and_lost_reply(redis_url: str, prefix: str) -> None:
    async with Proxy(redis_url) as proxy, client_of(proxy.url) as client, client_of(redis_url) as direct:
        await client.set(f"{prefix}:a", "x" * 1_000_000)
        lost = proxy.lose_reply_after(f"{prefix}:n".encode())
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.incr(f"{prefix}:n")
            pipeline.get(f"{prefix}:a")
            pipeline.incr(f"{prefix}:n")
            with pytest.raises(redis.exceptions.ConnectionError):
                await pipeline.execute()
        assert lost.is_set()
        assert await direct.get(f"{prefix}:n") == b"2"
        assert await client.incr(f"{prefix}:n") == 3
