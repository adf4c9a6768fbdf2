"""Statements that write the same keys at the same time, each in an order of its own: one waits for the other, never both."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from bucketd.store import confirm, runners, settle
from bucketd.store.connect import make_pool
from bucketd.store.settle import Candidate, NewRun
from tests.runner.conftest import World
from tests.support.waiting import wait_until

Connection = psycopg.AsyncConnection[Any]
PATIENT = {"lock_timeout_s": 30.0, "statement_timeout_s": 60.0}  # so that only a deadlock ends a wait
AT_LOCK = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
async def pair(world: World) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two connections as a runner's own."""
    async with (
        make_pool(world.settings.model_copy(update=PATIENT), application="test", size=2, hot=True) as pool,
        pool.connection() as first,
        pool.connection() as second,
    ):
        yield first, second


@pytest.fixture
def schedules(world: World) -> list[UUID]:
    """Three, in the order of their keys."""
    hook = world.target("http://h/")
    return sorted(world.schedule(hook) for _ in range(3))


async def confirming(world: World, connection: Connection, fires: list[bytes], claim: int) -> int:
    """How many rows the statement made of these fires."""
    runner_id = uuid4()
    await runners.join(connection, runner_id, host="test", pid=1)
    arrays = confirm.columns([(fire[:16], fire[16:20], fire[-12:]) for fire in fires])
    lines = await confirm.confirm(connection, runner_id, claim, arrays, dead_after_s=30.0, again=False)
    return sum(line[2] for line in lines)


async def judging(connection: Connection, target_id: int, ids: list[UUID], at_s: int) -> None:
    """Verdicts of these schedules, in this order."""
    slots = [Candidate(id, at_s, 0, "default", target_id, "run_once", 60, None, False) for id in ids]
    await settle.write(connection, [NewRun(slot, "deferred", "settle", 0, False, None) for slot in slots], {})


async def meet(
    world: World, between: UUID, at_s: int, first: Coroutine[Any, Any, Any], second: Coroutine[Any, Any, Any]
) -> list[Any]:
    """What both bring, if each got as far as the key between the others before it may go on: somebody else was writing that."""
    with psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as watch:

        def waiting() -> int:
            row = watch.execute(AT_LOCK).fetchone()
            assert row is not None
            return int(row[0])

        with world.db.transaction(force_rollback=True):
            world.run(between, at_s)
            tasks = [asyncio.create_task(first)]
            await wait_until(lambda: waiting() == 1, 10, "the first one to wait at the key between")
            tasks.append(asyncio.create_task(second))
            await wait_until(lambda: waiting() == 2, 10, "the second one to wait")
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_confirms_of_the_same_keys_never_wait_for_each_other(
    world: World, pair: tuple[Connection, Connection], schedules: list[UUID]
) -> None:
    at_s = world.now_s - 5
    fires = [world.fire(schedule, at_s) for schedule in schedules]
    found = await meet(
        world, schedules[1], at_s, confirming(world, pair[0], fires, 7), confirming(world, pair[1], fires[::-1], 8)
    )
    assert found == [3, 0]
    assert world.statuses() == {"running": 3}


async def test_a_confirm_and_verdicts_of_the_same_keys_never_wait_for_each_other(
    world: World, pair: tuple[Connection, Connection], schedules: list[UUID]
) -> None:
    at_s = world.now_s - 5
    fires = [world.fire(schedule, at_s) for schedule in schedules]
    target_id = world.value("select target_id from bucketd.schedules limit 1")
    found = await meet(
        world, schedules[1], at_s,
        confirming(world, pair[0], fires, 7), judging(pair[1], target_id, schedules[::-1], at_s),
    )  # fmt: skip
    assert found == [3, None]
    assert world.statuses() == {"running": 3}
