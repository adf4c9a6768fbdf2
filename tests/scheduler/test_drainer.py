"""Step 2: never early, never lost, bounded, and asleep until the next fire is due."""

from dataclasses import replace
from uuid import UUID

import pytest

from bucketd.scheduler.drainer import IDLE_PAUSE_S
from bucketd.store.buckets import BucketId, Drained, FenceState
from bucketd.store.keys import shard_of
from tests.scheduler.world import World


async def test_never_early_and_asleep_until_the_next_due_time(world: World) -> None:
    id = world.rows.every(10, 5)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    report = await scheduler.drainer.run_once()
    assert report.fires == 0
    for second in (15, 25):
        await world.turn_to(world.minute + second - 0.5)
        await world.drain(scheduler)
        report = await scheduler.drainer.run_once()
        assert report.next_due_s == world.minute + second
        assert 0 < scheduler.drainer.pause_s(report) <= 0.5
        fires = await world.consume(confirm_fires=False)
        assert all(fire.scheduled_at_s < world.minute + second for fire in fires)
        await world.turn_to(world.minute + second)
        assert await world.drain(scheduler) == 1
        (fire,) = await world.consume(confirm_fires=False)
        assert (fire.schedule_id, fire.scheduled_at_s) == (id.bytes, world.minute + second)


async def test_nothing_in_sight_is_an_idle_pause(world: World) -> None:
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    report = await scheduler.drainer.run_once()
    assert (report.scripts, report.next_due_s) == (0, None), "a bucket that was found empty is not asked again"
    assert scheduler.drainer.pause_s(report) == IDLE_PAUSE_S


async def test_a_full_queue_leaves_what_is_due_in_its_bucket(world: World) -> None:
    ids = [world.rows.every(1, id=_in_shard(n)) for n in range(30)]
    scheduler = await world.scheduler(drain_batch=100, queue_cap=1_000)
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 59)
    assert await world.drain(scheduler) == 1_000
    report = await scheduler.drainer.run_once()
    assert report.queue_full
    far = replace(report, next_due_s=world.minute + 3_600)
    assert scheduler.drainer.pause_s(far) == 0.05, "a full queue is looked at again soon"
    assert scheduler.drainer.pause_s(replace(report, next_due_s=world.minute)) == 0, "sooner if something else is due"
    planned = [await world.planned(id) for id in ids]
    left = sum(at <= world.minute + 59 for ats in planned for at in ats)
    assert left >= 30 * 60 - 1_000
    assert len(await world.consume()) == 1_000
    assert await world.drain(scheduler) >= left  # the clock goes on
    await world.consume()
    begin = world.rows.sql("select ceil(extract(epoch from max(floor)))::bigint from bucketd.schedules")[0][0]
    expected = list(range(max(begin, world.minute + 2), world.minute + 60))  # from when the last of them was there
    assert len(expected) > 50
    for id in ids:
        ats = [at for at, *_ in world.rows.runs(id) if at >= expected[0]]
        assert ats[: len(expected)] == expected


async def test_what_is_due_under_a_lease_that_ran_out_is_not_waited_for(world: World) -> None:
    """Both stores are away, so the lease stays where it is: the drainer must not look at its buckets for ever without a pause."""
    world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 30)
    for partition in scheduler.node.owned.values():
        partition.believed_until = 0.0
    report = await scheduler.drainer.run_once()
    assert (report.scripts, report.next_due_s) == (0, None)
    assert scheduler.drainer.pause_s(report) > 1


async def test_a_bucket_two_minutes_past_its_minute_is_deleted_undrained(world: World) -> None:
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.drain(scheduler)  # what a last owner might have left
    await world.turn_to(world.minute + 179)
    report = await scheduler.drainer.run_once()
    assert report.expired == 0
    await world.consume(confirm_fires=False)
    await world.redis.zadd(world.keys.bucket(id.bytes[15], world.minute // 60), {b"x" * 34: world.minute * 1_000})
    scheduler.node.owned[id.bytes[15]].expect(world.minute // 60, world.minute * 1_000)
    await world.turn_to(world.minute + 180)
    report = await scheduler.drainer.run_once()
    assert report.expired >= 1
    assert not await world.redis.exists(world.keys.bucket(id.bytes[15], world.minute // 60))
    assert await world.consume(confirm_fires=False) == []


async def test_a_write_during_a_drain_is_not_forgotten(world: World) -> None:
    """The drain found the bucket empty; a fire was planned before its answer was noted."""
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    minute = world.minute // 60
    partition = scheduler.node.owned[3]
    bucket = BucketId(3, minute)
    partition.expect(minute, world.minute * 1_000)
    seen = partition.buckets[bucket].writes
    partition.expect(minute, world.minute * 1_000 + 30_000)
    scheduler.drainer._note(partition, bucket, seen, Drained(FenceState.HELD, 0, None, 0))
    assert bucket in partition.buckets
    scheduler.drainer._note(partition, bucket, seen, Drained(FenceState.HELD, 5, world.minute * 1_000 + 50_000, 5))
    assert partition.buckets[bucket].due_ms == world.minute * 1_000, "the earlier time stands until the next look"
    scheduler.drainer._note(partition, bucket, seen + 1, Drained(FenceState.HELD, 5, None, 5))
    assert bucket not in partition.buckets


@pytest.mark.parametrize("count", [1, 130])
async def test_everything_due_moves_in_one_round_of_few_pipelines(world: World, count: int) -> None:
    for n in range(count):
        world.rows.at(world.minute + 10, id=_in_partition(n))
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.turn_to(world.minute + 11)
    report = await scheduler.drainer.run_once()
    assert (report.fires, report.scripts) == (count, count)


def _in_shard(n: int) -> UUID:
    id = UUID(int=(n << 64) | (n % 16) * 16)
    assert shard_of(id.bytes[15]) == 0
    return id


def _in_partition(n: int) -> UUID:
    return UUID(int=(1 << 100) | n)
