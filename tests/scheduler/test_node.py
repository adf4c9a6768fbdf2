"""A whole node in the test's loop: all its services at once, a nudge, and the hand-over."""

import asyncio

import pytest

from bucketd.scheduler.node import Scheduler
from bucketd.store.clock import monotonic
from bucketd.store.errors import SchemaError, UnfitRedis
from bucketd.store.keys import PARTITIONS
from tests.scheduler.world import World
from tests.support.waiting import wait_until


async def test_it_plans_drains_and_hands_over_in_less_than_a_second(world: World) -> None:
    world.rows.every(3_600)
    scheduler = await world.scheduler(own=False, feed_poll_s=10.0)
    baseline = asyncio.all_tasks()
    running = asyncio.create_task(scheduler.run())
    await wait_until(lambda: len(scheduler.node.owned) == PARTITIONS, 10, "the node to own everything")
    await wait_until(lambda: all(p.feed_applied for p in scheduler.node.owned.values()), 10, "the first plan")
    listening = f"{world.keys.nudge}"
    await wait_until(lambda: _subscribers(world, listening), 10, "the node to listen")
    due = int(world.rows.now()) + 2
    id = world.rows.at(due)
    await world.redis.publish(world.keys.nudge, b"put")
    fires = await wait_until(lambda: _fires(world), 10, "the fire in its queue")
    assert world.rows.now() - due < 1.0, "the nudge made it immediate: the poll comes each 10 s here"
    assert fires == 1
    began = monotonic()
    scheduler.node.stop.set()
    await running
    assert monotonic() - began < 1.5  # 1 s, and room for a busy machine
    assert [p for p in range(PARTITIONS) if await world.redis.exists(world.keys.lease(p))] == []
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == baseline
    assert id.bytes[15] not in scheduler.node.owned


async def _subscribers(world: World, channel: str) -> bool:
    return bool((await world.redis.pubsub_numsub(channel))[0][1])


async def _fires(world: World) -> int:
    return sum([await world.redis.xlen(queue) for queue in world.keys.queues])


async def test_it_does_not_start_on_a_schema_or_a_redis_that_does_not_fit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rows.sql("insert into bucketd.migrations (name) values ('9999_later')")
    scheduler = Scheduler(world.settings)
    with pytest.raises(SchemaError):
        await scheduler.open()
    await scheduler.close()
    world.rows.sql("delete from bucketd.migrations where name = '9999_later'")
    monkeypatch.setattr("bucketd.store.redis_client.REDIS_MIN", (99, 0))
    scheduler = Scheduler(world.settings)
    with pytest.raises(UnfitRedis):
        await scheduler.open()
    await scheduler.close()


async def test_a_defect_of_a_service_ends_the_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather no node than one of which a service is gone: a supervisor starts it again."""
    scheduler = await world.scheduler(own=False)

    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scheduler.settler, "run_once", broken)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(scheduler.run(), 20)
    assert caught.group_contains(ZeroDivisionError)
