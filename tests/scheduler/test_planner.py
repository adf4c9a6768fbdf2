"""Step 1: what is due in the horizon is in a bucket, however it was written and whoever owned the partition then."""

from itertools import chain
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis.asyncio import Redis

from bucketd.scheduler import planner as module
from bucketd.store import buckets
from bucketd.store.buckets import Entries
from bucketd.store.feed import Cursor
from bucketd.store.keys import Keys
from bucketd.timing import EverySpec
from tests.scheduler.world import World
from tests.support.rows import Rows


def ats(start_s: int, end_s: int, every_s: int, phase: int = 0) -> list[int]:
    """Instants of an interval in [start, end)."""
    return [at for at in range(start_s, end_s) if at % every_s == phase % every_s]


async def test_the_horizon_is_planned_to_its_last_minute(world: World) -> None:
    m = world.minute
    every, cron, once, jittered = (
        world.rows.every(7), world.rows.cron("* * * * *"), world.rows.at(m + 100), world.rows.every(3_600, m + 30, jitter_s=60)
    )  # fmt: skip
    far, paused = world.rows.at(m + 200), world.rows.every(5, paused=True)
    scheduler = await world.scheduler()
    report = await scheduler.planner.run_once()
    end = m + 180  # now is m + 1: the horizon of two minutes reaches into minute m + 2
    assert await world.planned(every) == ats(m, end, 7)
    assert await world.planned(cron) == [m, m + 60, m + 120]
    assert await world.planned(once) == [m + 100]
    assert await world.planned(jittered) == [m + 30]
    assert await world.planned(far) == []
    assert await world.planned(paused) == []
    assert report.minutes == 3 * 256
    ((due_ms, fire),) = [
        pair for pair in (await world.buckets())[jittered.bytes[15]] if pair[1].schedule_id == jittered.bytes
    ]
    assert due_ms == (m + 30 + world.rows.of(jittered, "jitter_offset_s")) * 1_000
    assert (fire.previous_s, fire.next_s, fire.timing_version) == (3_600, 3_600, 1)
    await world.turn_to(m + 25)
    assert (await scheduler.planner.run_once()).minutes == 0, "a minute is planned once"
    await world.turn_to(m + 60)
    assert (await scheduler.planner.run_once()).minutes == 256
    assert await world.planned(far) == [m + 200]


async def test_members_lie_in_the_bucket_of_the_minute_they_are_due_in(world: World) -> None:
    id = world.rows.every(10)
    await (await world.scheduler()).planner.run_once()
    for minute in range(world.minute // 60, world.minute // 60 + 3):
        found: list[Any] = await world.redis.zrange(world.keys.bucket(id.bytes[15], minute), 0, -1, withscores=True)
        assert [score for _, score in found] == [(minute * 60 + n) * 1_000.0 for n in range(0, 60, 10)]


async def test_raw_sql_into_planned_minutes_is_followed_by_the_feed(world: World) -> None:
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 20)
    soon, cron, later = (
        world.rows.at(world.minute + 21), world.rows.cron("* * * * *"), world.rows.every(60, 5, jitter_s=50)
    )  # fmt: skip
    report = await scheduler.planner.run_once()
    assert await world.planned(soon) == [world.minute + 21]
    assert set(await world.planned(cron)) >= {world.minute + 60, world.minute + 120}
    assert len(await world.planned(later)) >= 2, "its spec is learned before it is planned"
    assert report.from_feed >= 5
    assert (await scheduler.planner.run_once()).from_feed == 0


async def test_a_put_wakes_the_drainer_for_an_earlier_fire(world: World) -> None:
    scheduler = await world.scheduler()
    world.rows.at(world.minute + 50)
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    assert (await scheduler.drainer.run_once()).next_due_s == world.minute + 50
    world.rows.at(world.minute + 21)
    scheduler.node.wake_drainer.clear()
    await scheduler.planner.run_once()
    assert scheduler.node.wake_drainer.is_set()
    assert (await scheduler.drainer.run_once()).next_due_s == world.minute + 21


async def test_a_transaction_that_commits_late_is_planned(world: World) -> None:
    world.rows.every(3_600)
    scheduler = await world.scheduler()
    with psycopg.connect(world.settings.dsn.get_secret_value()) as connection:
        late = Rows(connection).at(world.minute + 90)
        await scheduler.planner.run_once()
        world.rows.every(3_600, 7)  # a younger one commits first
        await scheduler.planner.run_once()
        assert await world.planned(late) == []
        connection.commit()
    await scheduler.planner.run_once()
    assert await world.planned(late) == [world.minute + 90]


async def test_an_edit_is_planned_beside_the_old_timing_and_only_the_new_version_is_good_later(world: World) -> None:
    id = world.rows.every(60, 30)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    world.rows.sql("update bucketd.schedules set phase = 40 where id = %s", id)
    await scheduler.planner.run_once()
    fires = {(f.scheduled_at_s - world.minute, f.timing_version) for _, f in (await world.buckets())[id.bytes[15]]}
    assert fires >= {(30, 1), (90, 1), (40, 2), (100, 2)}
    for second in (45, 105):
        await world.turn_to(world.minute + second)
        await world.drain(scheduler)
        await world.consume()
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [40, 100], (
        "the old version held for none of its instants"
    )


async def test_an_edit_plans_no_past_instant(world: World) -> None:
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 33)
    world.rows.sql("update bucketd.schedules set phase = 5 where id = %s", id)
    await scheduler.planner.run_once()
    fires = [fire for _, fire in (await world.buckets())[id.bytes[15]] if fire.timing_version == 2]
    assert min(fire.scheduled_at_s for fire in fires) == world.minute + 35


async def test_an_edit_just_after_the_due_instant_does_not_lose_that_run(world: World) -> None:
    id = world.rows.every(60, 30)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 30.2)
    world.rows.sql("update bucketd.schedules set phase = 40 where id = %s", id)
    await world.turn_to(world.minute + 35)
    await world.drain(scheduler)
    await world.consume()
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [30]


async def test_pause_and_resume_do_not_fire_what_lay_between(world: World) -> None:
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 15)
    await world.drain(scheduler)
    await world.consume()
    world.rows.sql("update bucketd.schedules set paused = true where id = %s", id)
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 35)
    world.rows.sql("update bucketd.schedules set paused = false where id = %s", id)
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 45)
    await world.drain(scheduler)
    await world.consume()
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [10, 40]
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    await world.consume()
    await world.settle(scheduler)
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [10, 40, 50, 60]


async def test_what_was_written_while_nobody_owned_is_planned_at_take_over(world: World) -> None:
    first = await world.scheduler()
    await first.planner.run_once()
    await first.ownership.leave()
    await world.turn_to(world.minute + 62)
    ids = [world.rows.at(world.minute + second) for second in (65, 71, 90, 150)]
    await world.turn_to(world.minute + 70)
    second = await world.scheduler()
    await second.planner.run_once()
    found = [at - world.minute for id in ids for at in await world.planned(id)]
    assert found == [65, 71, 90, 150], "one of them fell due while nobody owned its partition"


async def test_a_take_over_leaves_alone_what_redis_still_has(world: World) -> None:
    """What the last owner drained need not come again; what it had planned for later is there."""
    id = world.rows.every(10)
    world.begin()  # so that it is none of the schedules written since the last settling
    first = await world.scheduler()
    await first.planner.run_once()
    await world.turn_to(world.minute + 35)
    await world.drain(first)
    drained = {f.scheduled_at_s for f in await world.consume()}
    await first.ownership.leave()
    second = await world.scheduler()
    await second.planner.run_once()
    await world.drain(second)
    again = {f.scheduled_at_s for f in await world.consume()}
    assert not again & drained
    assert set(await world.planned(id)) >= set(ats(world.minute + 40, world.minute + 120, 10))


async def test_an_owner_that_died_before_its_first_plan_left_nothing(world: World) -> None:
    """Its epoch stands at the fence, but no plan was ever acknowledged under it: the next owner must plan from the watermark."""
    id = world.rows.every(10)
    await world.scheduler()
    await world.turn_to(world.minute + 45)
    await world.redis.delete(*[world.keys.lease(p) for p in range(256)])  # as when they expire
    await world.redis.delete(world.keys.members)
    second = await world.scheduler()
    await second.planner.run_once()
    assert await world.planned(id) == ats(world.minute, world.minute + 180, 10)


async def test_more_changes_than_the_feed_carries_are_planned_anew(world: World) -> None:
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    ids = [world.rows.at(world.minute + 70 + n) for n in range(8)]
    limit, module.FEED_ROWS = module.FEED_ROWS, 5
    try:
        report = await scheduler.planner.run_once()
    finally:
        module.FEED_ROWS = limit
    assert report.minutes == 3 * 256
    assert [await world.planned(id) for id in ids] == [[world.minute + 70 + n] for n in range(8)]


async def test_a_timeline_that_goes_back_plans_anew_and_learns_specs_anew(world: World) -> None:
    """After a failover or a restore, transaction ids are given out again: cursors that are ahead would see nothing."""
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    ahead = int(world.rows.one("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")) + 100_000
    cursor = Cursor("another", f"{ahead}:{ahead}:")
    scheduler.planner._feed_cursor = scheduler.planner._spec_cursor = cursor
    id = world.rows.schedule(EverySpec(77), 0)
    report = await scheduler.planner.run_once()
    assert report.minutes == 3 * 256
    assert await world.planned(id) == ats(world.minute, world.minute + 180, 77)


async def test_a_lapse_of_belief_hides_no_change(world: World) -> None:
    """A schedule that is written while a node doubts a lease, which it then manages to renew, is planned all the same."""
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    id = world.rows.at(world.minute + 90)
    partition = scheduler.node.owned[id.bytes[15]]
    partition.believed_until = 0.0
    await scheduler.planner.run_once()
    assert await world.planned(id) == []
    scheduler.ownership._renewed_at = float("-inf")
    await scheduler.ownership.run_once()
    await scheduler.planner.run_once()
    assert await world.planned(id) == [world.minute + 90]


async def test_firing_writes_nothing_to_schedules(world: World) -> None:
    id = world.rows.every(10)
    before = world.rows.sql("select xmin::text, * from bucketd.schedules")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 35)
    await world.drain(scheduler)
    await world.consume()
    assert len(world.rows.runs(id)) == 3
    assert world.rows.sql("select xmin::text, * from bucketd.schedules") == before


async def test_two_plans_of_a_minute_add_up_to_one(world: World) -> None:
    ids = [world.rows.every(10, id=UUID(int=n, version=4)) for n in range(40)]
    first, second = await world.scheduler(), await world.scheduler()
    for scheduler in (first, second):
        await scheduler.ownership.run_once()
        await scheduler.planner.run_once()
    for id in ids:
        assert await world.planned(id) == ats(world.minute, world.minute + 180, 10)


@pytest.mark.long
async def test_a_large_minute_goes_in_pieces_and_is_marked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop gets a turn after each piece, so that a drain is not late; the fence moves when the minute is whole."""
    monkeypatch.setattr(module, "PIECE_FIRES", 50)
    ids = [world.rows.every(10, n % 10, id=UUID(int=n, version=4)) for n in range(40)]
    ids += [world.rows.cron("* * * * *", id=UUID(int=n, version=4)) for n in range(100, 300)]
    added: list[int] = []
    seqs: set[int] = set()
    add = buckets.add

    async def watch(redis: Redis, keys: Keys, entries: Entries) -> None:
        added.append(sum(len(flat) // 2 for flat in entries.values()))
        seqs.update([await fence_of(world, partition) for partition, *_ in entries])
        await add(redis, keys, entries)

    monkeypatch.setattr(buckets, "add", watch)
    scheduler = await world.scheduler()
    report = await scheduler.planner.run_once()
    assert sum(added) == report.fires == 40 * 18 + 200 * 3
    assert max(added) <= 56, "a piece, and what is due of one schedule or spec more"
    assert seqs == {0, 1, 2}, "one mark for each of three minutes"
    assert {await fence_of(world, partition) for partition in range(256)} == {3}
    instants: dict[bytes, list[int]] = {}
    for _, fire in chain.from_iterable((await world.buckets()).values()):  # once: it reads all of them
        instants.setdefault(fire.schedule_id, []).append(fire.scheduled_at_s)
    for n, id in enumerate(ids[:40]):
        assert instants[id.bytes] == ats(world.minute, world.minute + 180, 10, n % 10)
    for id in ids[40:]:
        assert len(instants[id.bytes]) == 3


async def fence_of(world: World, partition: int) -> int:
    """plan_seq at the fence."""
    found: Any = await world.redis.hgetall(world.keys.fence(partition))
    return int(found.get(b"plan_seq", 0))
