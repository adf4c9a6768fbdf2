"""Behind pgbouncer in transaction mode: time-outs and plans hold as they do directly, and nothing of ours stays on its connections."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from bucketd import AsyncClient, Client, ScheduleInput, every
from bucketd.cli.checks_postgres import postgres_checks
from bucketd.store.config import Settings
from bucketd.store.connect import connect, connect_async, make_pool, without_statement_timeout
from bucketd.store.locks import alone
from bucketd.store.migrate import known, migrate
from tests.support.pgbouncer import pgbouncer

NAMES = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "jit", "timezone")
HOT = ("enable_seqscan", "enable_hashjoin", "plan_cache_mode")
ASKED = "select array(select current_setting(name) from unnest(%(names)s::text[]) name)"


@pytest_asyncio.fixture
async def pooled(request: pytest.FixtureRequest, dsn: str, servers: Path) -> AsyncIterator[Settings]:
    """The test's database through a pgbouncer with two server connections, so that those of one session change all the time."""
    ignored = getattr(request, "param", "")  # of what comes with a start; it refuses the rest
    directory = servers / f"pgbouncer-{uuid.uuid4().hex[:8]}"
    async with pgbouncer(dsn, directory, default_pool_size="2", ignore_startup_parameters=ignored) as url:
        yield Settings.load({}, dsn=url, statement_timeout_s=0.5)


async def shown(connection: psycopg.AsyncConnection[Any], *names: str) -> list[str]:
    row = await (await connection.execute(ASKED, {"names": list(names)})).fetchone()
    assert row is not None
    found: list[str] = row[0]
    return found


async def left_behind(settings: Settings) -> list[str]:
    """What a stranger meets on the pooler's connections."""
    async with await psycopg.AsyncConnection.connect(
        settings.dsn.get_secret_value(), autocommit=True, prepare_threshold=None
    ) as stranger:
        return [*await shown(stranger, *NAMES[:4], *HOT), str(await prepared(stranger))]


async def prepared(connection: psycopg.AsyncConnection[Any]) -> int:
    row = await (await connection.execute("select count(*)::int from pg_prepared_statements")).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("pooled", ["", "options"], ids=["refused", "ignored"], indirect=True)
async def test_sessions_have_their_settings_and_strangers_theirs(pooled: Settings) -> None:
    before = await left_behind(pooled)
    wanted = ["500ms", "2s", "5s", "off", "UTC", "off", "off", "force_generic_plan"]
    async with make_pool(pooled, application="pooled", size=4, hot=True) as pool:

        async def use() -> None:
            for _ in range(5):
                async with pool.connection() as connection:
                    assert await shown(connection, *NAMES, *HOT) == wanted
                    async with connection.transaction(), connection.transaction():
                        assert await shown(connection, *NAMES, *HOT) == wanted
                        assert await prepared(connection) == 0

        await asyncio.gather(*(use() for _ in range(4)))
    assert await left_behind(pooled) == before
    checks = {check.name: check for check in await asyncio.to_thread(lambda: list(postgres_checks(pooled)))}
    assert "taken to be in transaction mode" in checks["pooler"].found


async def test_a_statement_is_a_transaction_as_ever(pooled: Settings) -> None:
    async with await connect_async(pooled) as connection:
        await connection.execute("create table t (n int primary key)")
        await connection.execute("insert into t values (%(n)s)", {"n": 1})
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute("insert into t values (2), (%(n)s)", {"n": 1})
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        cursor = await connection.execute("insert into t values (%(n)s) returning n", {"n": 3})
        assert (cursor.rowcount, await cursor.fetchall()) == (1, [(3,)])
        async with connection.transaction(force_rollback=True):
            await connection.execute("insert into t values (%(n)s)", {"n": 4})
    with connect(pooled) as reader:
        assert reader.execute("select array_agg(n order by n) from t").fetchall() == [([1, 3],)]


async def test_time_outs_end_what_takes_too_long(pooled: Settings) -> None:
    async with await connect_async(pooled) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled):
            await connection.execute("select pg_sleep(%(s)s)", {"s": 5})
        async with without_statement_timeout(connection):
            assert await shown(connection, "statement_timeout", "lock_timeout") == ["0", "2s"]
        assert await shown(connection, "statement_timeout") == ["500ms"]
    with connect(pooled) as plain, pytest.raises(psycopg.errors.QueryCanceled):
        plain.execute("select pg_sleep(5)")


async def test_a_lock_ends_with_who_holds_it(pooled: Settings, dsn: str) -> None:
    """One of a session would stay on whichever server connection it met."""
    directly = pooled.model_copy(update={"dsn": Settings.load({}, dsn=dsn).dsn})
    async with (
        make_pool(pooled, application="locks", size=2) as pool,
        make_pool(directly, application="others", size=1) as others,
    ):
        for _ in range(3):
            async with alone(pool, 7) as mine, alone(others, 7) as theirs:
                assert (mine, theirs) == (True, False)
        async with alone(others, 7) as theirs:
            assert theirs


async def test_migrations_and_clients(empty_dsn: str, servers: Path) -> None:
    async with pgbouncer(empty_dsn, servers / f"pgbouncer-{uuid.uuid4().hex[:8]}") as url:
        assert migrate(url) == known()
        assert migrate(url) == []
        with psycopg.connect(empty_dsn) as direct:
            held = direct.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
            assert held == (0,), "a pooler's connection has kept a lock: nobody else can migrate"
        with Client(url) as client:
            client.targets.put("t", "http://127.0.0.1:1/")
            client.schedules.put("one", every("1m"), target="t")
            client.schedules.put_many(ScheduleInput(name=f"n{n}", timing=every("5m"), target="t") for n in range(50))
            assert len(list(client.schedules.list())) == 51
        async with AsyncClient(url) as client_:
            await client_.schedules.put("two", every("1m"), target="t")
            assert (await client_.schedules.get("two")).created_at.utcoffset() is not None
