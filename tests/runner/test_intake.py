"""Messages: malformed ones, those of dead runners, and when they are acknowledged (I6)."""

import asyncio

import msgpack
import pytest

from bucketd.embedded import Server
from bucketd.store.config import Settings
from bucketd.store.fires import FIRE
from bucketd.store.keys import GROUP
from tests.runner.conftest import World
from tests.support.proxy import Proxy
from tests.support.target import Target
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"no msgpack",
        msgpack.packb([2, 0, b"x" * FIRE.size]),
        msgpack.packb([1, 0, b"x" * (FIRE.size + 1)]),
        msgpack.packb([1, 999, b"x" * FIRE.size]),
    ],
    ids=["empty", "reserved byte", "text", "unknown version", "torn fire", "no partition"],
)
async def test_malformed_messages_go(raw: bytes, world: World, target: Target, hook: int) -> None:
    world.put_raw(raw)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner() as runner:
        await world.until({"succeeded": 1})
        await world.until_quiet()
        assert runner.totals["malformed"] == 1
    assert world.pending() == 0


async def test_an_entry_without_our_field_goes(world: World) -> None:
    world.put_raw(b"x", field="foreign")
    async with world.runner() as runner:
        await world.until_quiet()
        assert runner.totals["malformed"] == 1


async def test_a_dead_consumers_message_is_taken_over(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    world.put([world.fire(schedule, world.now_s - 5)])
    stream = world.keys.queue(schedule.bytes[15])
    world.redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
    assert world.redis.xreadgroup(GROUP, "dead", {stream: ">"}, count=1)
    async with world.runner() as runner:
        await world.until({"succeeded": 1})
        await world.until_quiet()
        assert runner.totals["reclaimed"] == 1
    assert len(target.runs) == 1


async def test_a_message_over_many_batches_is_acknowledged_when_all_is_decided(
    world: World, target: Target, hook: int
) -> None:
    gate = world.now_s + 2
    early = world.fire(world.schedule(hook), gate)
    at = world.now_s - 5
    world.put([world.fire(world.schedule(hook), at) for _ in range(10)] + [early])
    async with world.runner(confirm_batch=3):
        await target.wait_runs(10, 10)
        if len(target.runs) == 10:
            assert world.queued() == 1  # its last fire is not decided
        await world.until({"succeeded": 11})
        await world.until_quiet()


async def test_fires_of_a_stopping_runner_go_to_the_next_at_once(world: World, target: Target, hook: int) -> None:
    world.put([world.fire(world.schedule(hook), world.now_s + 3)])
    async with world.runner(reclaim_idle_s=100.0) as first:
        await wait_until(lambda: first.totals["kept"], 10, "the early fire")
    assert world.pending() == 1
    assert world.runs() == []
    async with world.runner(reclaim_idle_s=3.0):  # the age that it was given makes it anybody's
        await world.until({"succeeded": 1})


async def test_a_flush_of_redis_is_survived(world: World, target: Target, own_redis: Server) -> None:
    moved = World(world.settings.model_copy(update={"redis_url": Settings.load({}, redis_url=own_redis.url).redis_url}))
    hook = moved.target(target.url)
    schedule = moved.schedule(hook)
    async with moved.runner():
        moved.put([moved.fire(schedule, moved.now_s - 5)])
        await target.wait_runs(1, 10)
        moved.redis.flushall()
        moved.put([moved.fire(schedule, moved.now_s - 4)])
        await target.wait_runs(2, 10)
        await moved.until_quiet()
    moved.close()


async def test_redis_away_and_back(world: World, target: Target, hook: int, redis_url: str) -> None:
    schedule = world.schedule(hook)
    async with Proxy(redis_url) as proxy:
        url = Settings.load({}, redis_url=proxy.url).redis_url
        async with world.runner(redis_url=url):
            world.put([world.fire(schedule, world.now_s - 5)])
            await target.wait_runs(1, 10)
            proxy.refuse()
            proxy.cut_now()
            world.put([world.fire(schedule, world.now_s - 4)])
            await asyncio.sleep(0.5)
            assert len(target.runs) == 1
            proxy.refuse(False)
            await target.wait_runs(2, 10)
            await world.until_quiet()
    assert world.statuses() == {"succeeded": 2}
