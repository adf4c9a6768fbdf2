"""Calls whose runs were ended meanwhile are broken off: whoever ended them, and on whichever runner they are."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from bucketd.client import Client
from tests.runner.conftest import World
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


@pytest.fixture
def hanging(target: Target, world: World) -> int:
    target.script = lambda request: Reply(hang=True)
    return world.target(target.url, timeout_s=60)


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    with Client(settings=world.settings) as client:
        yield client


async def begun(target: Target, calls: int) -> None:
    await wait_until(lambda: target.in_flight == calls, 10, f"{calls} calls under way")


async def test_a_newer_run_breaks_off_the_one_before(world: World, target: Target, hanging: int) -> None:
    """Within moments, by whichever of two runners the older one is called."""
    schedules = [world.schedule(hanging, overlap="cancel_running") for _ in range(20)]
    at = world.now_s - 20
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(world.runner(confirm_batch=10))
        for schedule in schedules:
            world.put([world.fire(schedule, at)])
        await begun(target, 20)
        target.script = lambda request: Reply()
        for schedule in schedules:
            world.put([world.fire(schedule, at + 5)])
        await world.until({"cancelled": 20, "succeeded": 20})
        await wait_until(lambda: target.in_flight == 0, 1.5, "no call under way")
        await world.until_quiet()


async def test_a_cancelled_run_is_broken_off_within_seconds(
    world: World, target: Target, hanging: int, client: Client
) -> None:
    schedule = world.schedule(hanging)
    async with world.runner() as runner:
        world.put([world.fire(schedule, world.now_s - 5)])
        await begun(target, 1)
        (run,) = await asyncio.to_thread(lambda: client.runs.list(status="running").items)
        await asyncio.to_thread(client.runs.cancel, run.id)
        await wait_until(lambda: target.in_flight == 0, 6, "no call under way")
        await wait_until(lambda: runner.admission.open == 0, 5, "empty accounts")
        await world.until({"cancelled": 1})


async def test_a_run_that_goes_on_is_left_alone(world: World, target: Target, hanging: int) -> None:
    schedule = world.schedule(hanging)
    async with world.runner() as runner:
        world.put([world.fire(schedule, world.now_s - 5)])
        await begun(target, 1)
        await wait_until(lambda: bool(runner.cancellations._lasting()), 6, "a call that lasts")
        async with runner._pool.connection() as connection:
            assert await runner.cancellations.look_up(connection) == 0
        assert target.in_flight == 1
        world.sql("update bucketd.runs set claim = claim + 1")  # another attempt has it
        await wait_until(lambda: target.in_flight == 0, 6, "no call under way")
        world.sql("delete from bucketd.claims")
