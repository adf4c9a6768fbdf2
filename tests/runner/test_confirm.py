"""The confirm service: what is kept, what is refused, what a lost reply or a bad row does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from bucketd.store.config import Settings
from bucketd.store.queues import make_groups
from bucketd.store.redis_client import make_redis
from tests.runner.conftest import World
from tests.support.proxy import Proxy
from tests.support.target import Target
from tests.support.waiting import wait_until


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[Proxy]:
    """Before this test's Postgres."""
    async with Proxy(dsn) as made:
        yield made


def through(proxy: Proxy) -> dict[str, Any]:
    """Settings that lead the runner through the proxy."""
    return {"dsn": Settings.load({}, dsn=proxy.url).dsn}


async def test_an_early_fire_waits_until_it_is_due(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    due = world.now_s + 2
    world.put([world.fire(schedule, due)])
    async with world.runner() as runner:
        await target.wait_runs(1, 10)
        assert target.requests[0].wall_s >= due  # I4; the test's Postgres is on this machine
        await world.until({"succeeded": 1})
        await world.until_quiet()
        assert runner.totals["kept"] >= 1


async def test_a_fire_of_a_broken_clock_is_left_to_settling(world: World, hook: int) -> None:
    world.put([world.fire(world.schedule(hook), world.now_s + 3000)])
    async with world.runner() as runner:
        await wait_until(lambda: runner.totals["refused_early"], 10, "the refusal")
        await world.until_quiet()
    assert world.runs() == []


async def test_refused_fires_are_acknowledged_and_counted(world: World, target: Target, hook: int) -> None:
    at = world.now_s - 5
    good, paused = world.schedule(hook), world.schedule(hook, paused=True)
    world.put([world.fire(good, at), world.fire(paused, at), world.fire(uuid4(), at), world.fire(good, at, version=9)])
    async with world.runner() as runner:
        await world.until({"succeeded": 1})
        await world.until_quiet()
        refused = {key: n for key, n in runner.totals.items() if key.startswith("refused_")}
    # the second fire of `good` has the same key: it is asked about in a batch of its own
    assert refused == {"refused_paused": 1, "refused_missing": 1, "refused_version": 1}
    assert world.pending() == 0
    assert len(target.runs) == 1


async def test_one_key_many_times_is_one_call(world: World, target: Target, hook: int) -> None:
    fire = world.fire(world.schedule(hook), world.now_s - 5)
    world.put([fire] * 3)
    world.put([fire])
    async with world.runner() as runner:
        await world.until_quiet()
        await wait_until(lambda: runner.totals["refused_duplicate"] == 3, 10, "three duplicates")
    assert len(target.runs) == 1
    assert world.statuses() == {"succeeded": 1}


async def test_a_lost_commit_reply_is_resolved_by_the_claim(
    world: World, target: Target, hook: int, proxy: Proxy
) -> None:
    """The statement commits, its reply is lost: the same claim is sent again, and the rows are called, once each."""
    at = world.now_s - 5
    async with world.runner(**through(proxy)) as runner:
        lost = proxy.lose_reply_after(b"insert into bucketd.runs")
        world.put(world.fire(world.schedule(hook), at) for _ in range(30))
        await asyncio.wait_for(lost.wait(), 10)
        await world.until({"succeeded": 30})
        await world.until_quiet()
        assert not [key for key in runner.totals if key.startswith("refused_")]
    assert len(target.runs) == 30
    assert [run["attempt"] for run in world.runs()] == [1] * 30


async def test_a_lost_commit_reply_and_a_pause_leave_no_orphan(
    world: World, target: Target, hook: int, proxy: Proxy
) -> None:
    """The row of the lost reply exists; that its schedule was paused meanwhile must not hide it."""
    schedule = world.schedule(hook, payload='{"k": 1}')
    async with world.runner(**through(proxy)):
        lost = proxy.lose_reply_after(b"insert into bucketd.runs")
        proxy.refuse()  # no second try before the pause
        world.put([world.fire(schedule, world.now_s - 5)])
        await asyncio.wait_for(lost.wait(), 10)
        world.sql("update bucketd.schedules set paused = true")
        proxy.refuse(False)
        await world.until({"succeeded": 1})
        await world.until_quiet()
    assert [run["payload"] for run in target.runs] == [{"k": 1}]


async def test_a_statement_that_never_arrived_is_sent_again(
    world: World, target: Target, hook: int, proxy: Proxy
) -> None:
    async with world.runner(**through(proxy)):
        proxy.refuse()
        proxy.cut_now()
        world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(5))
        await wait_until(lambda: world.pending(), 5, "the read")
        await asyncio.sleep(0.3)  # tries fail meanwhile
        proxy.refuse(False)
        await world.until({"succeeded": 5})
        await world.until_quiet()
    assert len(target.runs) == 5


async def test_a_bad_row_does_not_keep_back_the_others(world: World, target: Target, hook: int) -> None:
    """A day that the cluster row promises and that is not there (23514): the batch is split down to the fire."""
    at = world.now_s - 5
    schedules = [world.schedule(hook) for _ in range(9)]
    world.sql("update bucketd.cluster set days_through = days_through + interval '400 days'")
    world.sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'bad' using errcode = '23514'; end $$"
    )
    world.sql(
        f"create trigger bad before insert on bucketd.runs for each row when (new.schedule_id = '{schedules[4]}') execute function refuse()"
    )
    world.put(world.fire(schedule, at) for schedule in schedules)
    async with world.runner() as runner:
        await world.until({"succeeded": 8})
        await world.until_quiet(20)
        assert runner.totals["refused_failed"] == 1
    assert len(target.runs) == 8


async def test_a_bad_row_that_heals_is_confirmed(world: World, target: Target, hook: int) -> None:
    world.sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'bad' using errcode = '23514'; end $$"
    )
    world.sql("create trigger bad before insert on bucketd.runs for each row execute function refuse()")
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner() as runner:
        await wait_until(lambda: runner.totals["kept"], 10, "the first failure")
        world.sql("drop trigger bad on bucketd.runs")
        await world.until({"succeeded": 1})


async def test_a_locked_table_is_waited_for(world: World, target: Target, hook: int) -> None:
    """A lock time-out is nobody's fault: tried again, never split, never given up."""
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(3))
    async with world.runner(lock_timeout_s=0.1) as runner:
        with world.db.transaction():
            world.sql("lock table bucketd.runs in share mode")
            await wait_until(lambda: world.pending(), 5, "the read")
            await asyncio.sleep(0.5)
        await world.until({"succeeded": 3})
        assert runner.totals["kept"] == 0


async def test_large_payloads_bound_the_batch(world: World, target: Target, hook: int) -> None:
    payload = '"' + "x" * 60_000 + '"'
    world.put(world.fire(world.schedule(hook, payload=payload), world.now_s - 5) for _ in range(300))
    async with world.runner() as runner:
        await world.until({"succeeded": 300}, 30)
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == runner.admission.ready == 0, 5, "empty accounts")
    assert len(target.runs) == 300


async def test_groups_begin_at_the_first_message(world: World, target: Target, hook: int) -> None:
    """What was queued before any runner lived is read."""
    redis = make_redis(world.settings)
    await make_groups(redis, world.keys.queues)
    await make_groups(redis, world.keys.queues)  # and again: harmless
    await redis.aclose()
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await target.wait_runs(1, 10)
