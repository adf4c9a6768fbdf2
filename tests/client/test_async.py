"""The async client does the same over the same statements; and what only asyncio has: tasks at once, and cancellation."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from bucketd import AsyncClient, Client, ScheduleInput, every
from bucketd.client import Release
from bucketd.client.async_schedules import AsyncSchedules
from bucketd.client.backfills import AsyncBackfills, Backfills
from bucketd.client.backlog import AsyncBacklogs, Backlogs
from bucketd.client.calendars import AsyncCalendars, Calendars
from bucketd.client.dead import AsyncDeadLetters, DeadLetters
from bucketd.client.runs import AsyncRuns, Runs
from bucketd.client.schedules import Schedules
from bucketd.client.targets import AsyncTargets, Targets
from bucketd.client.tenants import AsyncTenants, Tenants
from bucketd.errors import InvalidBatch, InvalidInput, NotFound, StoreUnavailable
from tests.client.conftest import count

TWINS = [
    (Client, AsyncClient),
    (Schedules, AsyncSchedules),
    (Targets, AsyncTargets),
    (Tenants, AsyncTenants),
    (Runs, AsyncRuns),
    (Backfills, AsyncBackfills),
    (Backlogs, AsyncBacklogs),
    (Calendars, AsyncCalendars),
    (DeadLetters, AsyncDeadLetters),
]


@pytest.fixture
async def aclient(dsn: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(dsn) as client:
        await client.targets.put("hook", "http://localhost:9/hook")
        yield client


@pytest.mark.parametrize(("one", "other"), TWINS, ids=lambda kind: kind.__name__)
def test_the_twins_promise_the_same(one: type, other: type) -> None:
    def public(kind: type) -> dict[str, Any]:
        return {name: f for name, f in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}

    def plain(text: object) -> str:
        return str(text).replace("Async", "")

    assert public(one).keys() == public(other).keys()
    for name, function in public(one).items():
        twin = public(other)[name]
        assert plain(inspect.signature(function)) == plain(inspect.signature(twin)), name
        assert inspect.getdoc(function) == inspect.getdoc(twin), name
        assert inspect.getdoc(function), name
        assert inspect.iscoroutinefunction(twin) != (name == "on"), name


async def test_a_round_through_everything(aclient: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    made = await aclient.schedules.put("a", every("1h"), target="hook", payload={"x": 1})
    assert made.created
    assert not (await aclient.schedules.put("a", every("1h"), target="hook", payload={"x": 1})).changed
    assert (await aclient.schedules.pause("a")).paused
    assert not (await aclient.schedules.resume("a")).paused
    ahead = await aclient.schedules.next("a", 2)
    assert await aclient.schedules.skip_next("a") == ahead[0]
    run = await aclient.runs.get(await aclient.schedules.trigger("a"))
    assert (await aclient.runs.cancel(run.id)).reason == "cancelled"
    assert {r.reason for r in await aclient.runs.list(name="a")} == {"cancelled", "user"}
    now = datetime.now(UTC)
    asked = await aclient.backfill(now - timedelta(hours=2), now - timedelta(hours=1), all=True)
    assert (await aclient.backfills.get(asked.id)).id == asked.id
    await aclient.backfills.cancel(asked.id)
    await aclient.hold(all=True)
    assert len(await aclient.holds()) == 1
    assert await aclient.release(all=True) == Release()
    assert (await aclient.dead.list()).items == ()
    assert await aclient.dead.count() == 0
    with pytest.raises(NotFound):
        await aclient.dead.get(1)
    assert (await aclient.status()).schedules == 1
    assert (await aclient.tenants.put("t", max_running=3)).created
    assert [(tenant.name, tenant.max_running) for tenant in await aclient.tenants.list()] == [("t", 3)]
    await aclient.tenants.delete("t")
    with pytest.raises(NotFound):
        await aclient.tenants.get("t")
    await aclient.schedules.delete("a")
    with pytest.raises(NotFound):
        await aclient.schedules.get("a")
    await aclient.targets.delete("hook")


async def test_put_many(aclient: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    rows: list[ScheduleInput | InvalidInput] = [
        ScheduleInput(name=f"s{i}", timing=every("1h"), target="hook") for i in range(30)
    ]
    with pytest.raises(InvalidBatch):
        await aclient.schedules.put_many([*rows, InvalidInput("no")])
    assert count(sql, "schedules") == 0
    results = await aclient.schedules.put_many([*rows, InvalidInput("no")], skip_invalid=True)
    assert [r.status for r in results] == ["created"] * 30 + ["invalid"]
    pruned = await aclient.schedules.put_many(rows[:10], prune=True)
    assert [r.status for r in pruned] == ["unchanged"] * 10 + ["deleted"] * 20


async def test_in_the_callers_transaction_a_rollback_leaves_nothing(
    aclient: AsyncClient, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await aclient.schedules.put("a", every("1h"), target="hook", connection=connection)
        async with aclient.on(connection) as bound:
            await bound.schedules.put_many([ScheduleInput(name="b", timing=every("1h"), target="hook")])
            await bound.schedules.trigger("a")
        await connection.rollback()
    assert (count(sql, "schedules"), count(sql, "runs")) == (0, 0)


async def test_a_sync_connection_is_refused(aclient: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"psycopg\.AsyncConnection"):
        await aclient.schedules.put("a", every("1h"), target="hook", connection=sql)  # type: ignore[arg-type]


async def test_many_tasks_share_a_client(aclient: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    await asyncio.gather(*(aclient.schedules.put(f"s{i}", every("1h"), target="hook") for i in range(40)))
    assert count(sql, "schedules") == 40


async def test_a_cancelled_call_leaves_nothing_and_the_client_goes_on(
    aclient: AsyncClient, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    """Blocked by a lock, then cancelled: its transaction is gone, and its connection is not used again."""
    await aclient.schedules.put("a", every("1h"), target="hook")
    async with await psycopg.AsyncConnection.connect(dsn) as blocker:
        await blocker.execute("select from bucketd.schedules for update")
        for _ in range(6):  # more often than there are connections
            task = asyncio.create_task(aclient.schedules.put("a", every("1h"), target="hook", payload=1))
            await _until_someone_waits(sql)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert (await aclient.schedules.get("a")).payload is None
    assert (await aclient.schedules.put("a", every("1h"), target="hook", payload=2)).changed


async def test_a_wrong_address_says_so() -> None:
    async with AsyncClient("postgresql://someone:hush@127.0.0.1:1/db") as client:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
            await client.schedules.list()


async def test_the_cluster_is_told(dsn: str, redis_url: str, prefix: str) -> None:
    import redis.asyncio

    from bucketd.store.keys import Keys

    async with redis.asyncio.Redis.from_url(redis_url) as connection, connection.pubsub() as listener:
        await listener.subscribe(Keys(prefix).nudge)
        assert (await listener.get_message(timeout=5))["type"] == "subscribe"
        async with AsyncClient(dsn, redis_url, prefix) as client:
            await client.targets.put("hook", "http://localhost:9/hook")
            message = None
            for n in range(20):  # one that takes over a second to say is given up: nodes look each second anyway
                await client.schedules.put(f"a{n}", every("1h"), target="hook")
                if message := await listener.get_message(timeout=1):
                    break
        assert message is not None
        assert message["type"] == "message"


async def _until_someone_waits(sql: psycopg.Connection[Any]) -> None:
    for _ in range(2_000):
        found = sql.execute(
            "select count(*) from pg_stat_activity"
            " where wait_event_type = 'Lock' and application_name = 'bucketd client' and datname = current_database()"
        ).fetchone()
        if found and found[0]:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody waits for a lock")
