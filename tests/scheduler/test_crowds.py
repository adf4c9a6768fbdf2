"""A crowd goes through buckets and queues of its own, and is settled like everything else."""

from typing import Any

from bucketd.scheduler.crowds import CROWD
from bucketd.store.fires import decode_message, unpack
from tests.scheduler.world import World


def a_crowd(world: World, at_s: int) -> None:
    """One-shots of one tenant, all at one instant."""
    first = world.rows.at(at_s, tenant="crowd")
    world.rows.sql(
        "insert into bucketd.schedules (name, tenant, spec_id, phase, target_id, overlap)"
        " select 'c' || n, tenant, spec_id, phase, target_id, overlap"
        " from bucketd.schedules, generate_series(2, %s) n where id = %s",
        CROWD,
        first,
    )


async def in_queues(world: World, queues: tuple[str, ...]) -> list[bytes]:
    found = []
    for queue in queues:
        entries: Any = await world.redis.xrange(queue)
        for _, fields in entries:
            found += [fire.schedule_id for fire in unpack(decode_message(fields[b"m"])[1])]
    return found


async def test_a_crowd_is_drained_beside_the_others_of_its_instant(world: World) -> None:
    at_s = world.minute + 30
    other = world.rows.at(at_s, tenant="small")
    a_crowd(world, at_s)
    scheduler = await world.scheduler()
    assert (await scheduler.planner.run_once()).fires == CROWD + 1
    assert await world.planned(other) == [at_s]
    await world.turn_to(at_s)
    assert await world.drain(scheduler) == CROWD + 1
    assert await in_queues(world, world.keys.main_queues) == [other.bytes]
    assert len(await in_queues(world, world.keys.crowd_queues)) == CROWD


async def test_a_full_queue_of_a_crowd_holds_nobody_else_up(world: World) -> None:
    a_crowd(world, world.minute + 30)
    later = world.rows.at(world.minute + 31, tenant="small")
    scheduler = await world.scheduler(queue_cap=1_000)
    await scheduler.planner.run_once()
    for queue in world.keys.crowd_queues:
        await world.redis.xadd(queue, {"m": b"x", "c": 1_000, "n": 1_000})
    await world.turn_to(world.minute + 30)
    report = await scheduler.drainer.run_once()
    assert (report.fires, report.queue_full) == (0, True)
    assert report.next_due_s == world.minute + 31, "and its fires are not what the drainer waits for"
    await world.turn_to(world.minute + 31)
    assert (await scheduler.drainer.run_once()).fires == 1
    assert await in_queues(world, world.keys.main_queues) == [later.bytes]


async def test_a_minute_is_settled_when_its_crowd_is_through(world: World) -> None:
    a_crowd(world, world.minute + 30)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    await world.settle(scheduler)
    assert world.settled() == {world.minute - 1}, "no runner has taken the crowd"
    await world.consume()
    assert (await world.settle(scheduler)).missing == 0
    assert world.settled() == {world.minute + 59}
    assert world.rows.one("select count(*) from bucketd.runs") == CROWD


async def test_a_crowd_that_its_last_owner_did_not_drain_is_drained_by_the_next(world: World) -> None:
    a_crowd(world, world.minute + 30)
    first = await world.scheduler()
    await first.planner.run_once()
    await first.ownership.leave()
    second = await world.scheduler()
    await world.turn_to(world.minute + 30)
    assert await world.drain(second) == CROWD
