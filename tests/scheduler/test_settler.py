"""Settling: every due occurrence gets a row or is counted in one, once, however often and by whomever it is settled."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd.scheduler.node import Scheduler
from bucketd.store import holds
from bucketd.store.operation import drive_async
from bucketd.timing import EverySpec
from tests.scheduler.world import World
from tests.support.rows import Rows

LOST_S = 205  # the clock when the minutes of a test are looked at again: each slot is over 60 s late


async def lose(world: World, scheduler: Scheduler, until_s: int = LOST_S) -> None:
    """Minutes were planned, and nothing of them was confirmed; the clock stands at `until_s` of the test."""
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + until_s)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)


def shape(world: World, id: UUID) -> list[tuple[Any, ...]]:
    """Runs, with instants as seconds of the test."""
    return [(at - world.minute, *rest) for at, *rest in world.rows.runs(id)]


async def test_a_settled_minute_moves_the_watermark_to_its_last_second(world: World) -> None:
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.turn_to(world.minute + 60)
    assert (await world.settle(scheduler)).partitions == 0, "runners get a moment to confirm the last second"
    await world.turn_to(world.minute + 61.5)
    await world.drain(scheduler)
    assert (await world.settle(scheduler)).partitions == 256
    assert world.settled() == {world.minute + 59}
    assert (await world.settle(scheduler)).partitions == 0


async def test_what_was_confirmed_is_left_alone(world: World) -> None:
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    await world.consume()
    before = world.everything()
    report = await world.settle(scheduler)
    assert (report.missing, report.written) == (0, 0)
    assert world.everything() == before
    assert [run[0] for run in shape(world, id)] == [10, 20, 30, 40, 50, 60]


async def test_it_waits_for_buckets_queue_and_runners(world: World) -> None:
    id = world.rows.every(10, 5)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 62)
    p = [id.bytes[15]]
    await world.settle(scheduler)
    assert world.settled(p) == {world.minute - 1}, "fires are in the bucket"
    await world.drain(scheduler)
    await world.settle(scheduler)
    assert world.settled(p) == {world.minute - 1}, "fires are in the queue, and no runner is there"
    await world.redis.xgroup_create(world.keys.queue(p[0]), "runners", id="0")
    answer: Any = await world.redis.xreadgroup("runners", "slow", {world.keys.queue(p[0]): ">"})
    ((_, entries),) = answer
    await world.settle(scheduler)
    assert world.settled(p) == {world.minute - 1}, "a runner has them in hand"
    await world.redis.xack(world.keys.queue(p[0]), "runners", *[entry for entry, _ in entries])
    report = await world.settle(scheduler)
    assert world.settled(p) == {world.minute + 59}
    assert report.written == 6, "it acknowledged without a row: settling gives them one"


async def test_later_fires_of_the_queue_do_not_hold_an_earlier_minute_up(world: World) -> None:
    id = world.rows.every(10, 5)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    await scheduler.settler.run_once()  # looks at what is in the queue by now
    await world.consume()
    await world.turn_to(world.minute + 66)
    await world.drain(scheduler)
    await world.settle(scheduler)
    assert world.settled([id.bytes[15]]) == {world.minute + 59}


async def test_a_queue_that_was_lost_with_redis_is_settled_from_postgres(world: World) -> None:
    id = world.rows.every(10, 5)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    await scheduler.settler.run_once()
    await world.redis.delete(*world.keys.queues)
    report = await world.settle(scheduler)
    assert report.written == 6
    assert world.settled([id.bytes[15]]) == {world.minute + 59}


async def test_verdicts_of_each_policy_in_one_pass_that_stay(world: World) -> None:
    once, skip, all_, deadline, fresh, mixed = (
        world.rows.every(30, misfire="run_once"), world.rows.every(30, misfire="skip"), world.rows.every(30, misfire="catch_up"),
        world.rows.every(30, misfire="catch_up", deadline_s=100), world.rows.every(30, misfire="skip", misfire_threshold_s=400),
        world.rows.every(30, misfire="run_once", misfire_threshold_s=100),
    )  # fmt: skip
    scheduler = await world.scheduler()
    await lose(world, scheduler)  # slots at 30, 60, .. 150, 180 (180 is of an open minute)
    report = await world.settle(scheduler)
    assert world.settled() == {world.minute + 179}
    assert report.missing == 6 * 5
    assert shape(world, once) == [(120, "deferred", "settle", 3, "misfire"), (150, "deferred", "settle", 0, None)]
    assert shape(world, skip) == [(120, "skipped", "settle", 3, "misfire"), (150, "deferred", "settle", 0, None)]
    assert shape(world, all_) == [
        *[(at, "deferred", "catch_up", 0, "catch_up") for at in (30, 60, 90, 120)], (150, "deferred", "settle", 0, None)
    ]  # fmt: skip
    assert shape(world, deadline) == [
        (120, "deferred", "catch_up", 3, "catch_up"), (150, "deferred", "settle", 0, None)
    ]  # fmt: skip
    assert shape(world, fresh) == [(at, "deferred", "settle", 0, None) for at in (30, 60, 90, 120, 150)]
    assert shape(world, mixed) == [
        (90, "deferred", "settle", 2, "misfire"), (120, "deferred", "settle", 0, None), (150, "deferred", "settle", 0, None)
    ]  # fmt: skip
    before = world.everything()
    world.rows.sql("update bucketd.partitions set settled_through = to_timestamp(%s)", world.minute - 1)
    for partition in scheduler.node.owned.values():
        partition.settled_through_s = world.minute - 1
    again = await world.settle(scheduler)
    assert again.partitions == 256
    assert (again.missing, again.written) == (0, 0)
    assert world.everything() == before


async def test_one_outage_gives_one_run_though_a_runner_confirmed_its_newest_slot_late(world: World) -> None:
    """The newest missed slot of a run_once schedule is taken from the queue; what is older is counted there."""
    id = world.rows.every(120, world.minute + 10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + LOST_S)  # the bucket of the first slot has expired by now
    await world.drain(scheduler)
    await world.consume()
    assert shape(world, id) == [(130, "running", "late", 0, None)]
    await scheduler.planner.run_once()
    await world.settle(scheduler)
    assert shape(world, id) == [(130, "running", "late", 1, None)]
    assert world.rows.of(id, "floor").timestamp() == world.minute + 130


async def test_under_a_hold_everything_due_is_kept(world: World) -> None:
    world.rows.sql("insert into bucketd.holds (scope, tenant) values ('tenant', 'held')")
    held, free = world.rows.every(30, tenant="held", misfire="skip"), world.rows.every(30)
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert shape(world, held) == [(at, "held", "settle", 0, None) for at in (30, 60, 90, 120, 150)]
    assert len(shape(world, free)) == 2


async def test_bounds_of_a_schedule(world: World) -> None:
    begins, ends, paused = world.rows.every(30), world.rows.every(30), world.rows.every(30)
    world.rows.sql(
        "update bucketd.schedules set starts_at = to_timestamp(%s) where id = %s", world.minute + 150, begins
    )
    world.rows.sql("update bucketd.schedules set ends_at = to_timestamp(%s) where id = %s", world.minute + 60, ends)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    world.rows.sql("update bucketd.schedules set paused = true where id = %s", paused)
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, begins)] == [150]
    assert shape(world, ends) == [(30, "deferred", "settle", 0, "misfire")]
    assert shape(world, paused) == []


async def test_nothing_before_its_creation_gets_a_row(world: World) -> None:
    await world.turn_to(world.minute + 95)
    every, cron = world.rows.every(30), world.rows.cron("* * * * *")
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert sum(run[3] + 1 for run in shape(world, every)) == 2  # 120, 150
    assert [run[0] for run in shape(world, cron)] == [120]


async def test_crons_one_shots_and_jitter_are_found_missing(world: World) -> None:
    cron, once = world.rows.cron("* * * * *", misfire="catch_up"), world.rows.at(world.minute + 77)
    jittered = [world.rows.cron("* * * * *", misfire="catch_up", jitter_s=50) for _ in range(6)]
    spread = [world.rows.every(60, 40, misfire="catch_up", jitter_s=50) for _ in range(6)]
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, cron)] == [60, 120]
    assert [run[0] for run in shape(world, once)] == [77]
    for id in (*jittered, *spread):
        offset, first = world.rows.of(id, "jitter_offset_s"), 60 if id in jittered else 40
        expected = [at for at in range(first, 180, 60) if at + offset <= 179]
        assert [run[0] for run in shape(world, id)] == expected, (offset, id in jittered)
        assert world.rows.one("select min(jitter_offset_s) from bucketd.runs where schedule_id = %s", id) == offset


async def test_an_edit_splits_the_window_by_versions(world: World) -> None:
    """Instants of each version count where it held: 30-second slots before the edit, 20-second ones after."""
    id = world.rows.every(30, 5, misfire="catch_up")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 70)
    world.rows.sql(
        "update bucketd.schedules set spec_id = %s, phase = 7 where id = %s", world.rows.spec(EverySpec(20)), id
    )
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, id)] == [5, 35, 65, 87, 107, 127, 147, 167]


def jittered(world: World, jitter_s: int, low_s: int, high_s: int, **columns: Any) -> UUID:
    """A minutely cron whose jitter lies in [low, high)."""
    return next(
        id for id in (world.rows.cron("* * * * *", jitter_s=jitter_s, **columns) for _ in range(400))
        if low_s <= world.rows.of(id, "jitter_offset_s") < high_s
    )  # fmt: skip


async def test_an_edit_of_the_jitter_moves_no_instant_of_before(world: World) -> None:
    """Second 60 was to be due around 210, and is: not at the edit, and not late because the new jitter is short."""
    id = jittered(world, 200, 130, 175, misfire="skip")
    offset = world.rows.of(id, "jitter_offset_s")
    scheduler = await world.scheduler()
    await world.turn_to(world.minute + 70)
    world.rows.sql("update bucketd.schedules set jitter_s = 30 where id = %s", id)
    await lose(world, scheduler, 125)
    await world.settle(scheduler)
    assert shape(world, id) == []
    await lose(world, scheduler, 242)
    await world.settle(scheduler)
    assert shape(world, id)[0] == (60, "deferred", "settle", 0, None)
    assert world.rows.one("select jitter_offset_s from bucketd.runs where scheduled_at = to_timestamp(%s)"
        " and schedule_id = %s", world.minute + 60, id) == offset  # fmt: skip


async def test_what_is_due_yet_by_an_older_jitter_is_not_lost_below_a_floor(world: World) -> None:
    id = jittered(world, 300, 200, 235)
    scheduler = await world.scheduler()
    await world.turn_to(world.minute + 70)
    world.rows.sql("update bucketd.schedules set jitter_s = 0 where id = %s", id)
    await lose(world, scheduler, 245)
    await world.settle(scheduler)
    assert shape(world, id) == [(180, "deferred", "settle", 1, "misfire")]
    await lose(world, scheduler, 302)
    await world.settle(scheduler)
    assert shape(world, id)[0] == (60, "deferred", "settle", 0, None)


async def test_an_edit_back_and_forth_counts_nothing_twice(world: World) -> None:
    id = world.rows.every(30, 5, misfire="catch_up")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    for second, phase in ((40, 10), (75, 5), (110, 10)):
        await world.turn_to(world.minute + second)
        world.rows.sql("update bucketd.schedules set phase = %s where id = %s", phase, id)
    await lose(world, scheduler)
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, id)] == [5, 35, 70, 95, 130, 160]


async def test_a_commit_behind_the_watermark_is_settled_with_the_next_window(world: World) -> None:
    other = world.rows.every(3_600)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    with psycopg.connect(world.settings.dsn.get_secret_value()) as connection:
        late_rows = Rows(connection)
        late = late_rows.every(10, 5, misfire="catch_up")
        late_rows.sql("update bucketd.schedules set payload = '2' where id = %s", late)
        await world.turn_to(world.minute + 62)
        await world.drain(scheduler)
        await world.settle(scheduler)
        assert world.settled() == {world.minute + 59}
        connection.commit()
    assert world.rows.of(other, "floor") <= world.rows.of(late, "floor")
    await world.turn_to(world.minute + 122)
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.consume()
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, late)] == list(range(5, 120, 10)), "each of its instants, those before too"
    before = world.everything()
    await world.turn_to(world.minute + 182)
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.consume()
    await world.settle(scheduler)
    assert [row for row in before if row not in world.everything()] == [], "it is looked after once"


async def test_a_late_resume_does_not_fire_what_lay_before_it(world: World) -> None:
    id = world.rows.every(10, 5, misfire="catch_up", paused=True)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 32)
    with psycopg.connect(world.settings.dsn.get_secret_value()) as connection:
        Rows(connection).sql("update bucketd.schedules set paused = false where id = %s", id)
        await world.turn_to(world.minute + 62)
        await world.drain(scheduler)
        await world.settle(scheduler)
        connection.commit()
    await world.turn_to(world.minute + 122)
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.consume(confirm_fires=False)
    await world.settle(scheduler)
    assert [run[0] for run in shape(world, id)] == list(range(35, 120, 10))


async def test_watermark_and_verdicts_are_one_transaction(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A run that cannot be written keeps the watermark where it is, of its partition alone: the others go on."""
    id = world.rows.every(30)
    other = world.rows.every(30, id=UUID(int=(1 << 64) | (id.bytes[15] + 1) % 256), tenant="other")
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    world.rows.sql("alter table bucketd.runs add constraint broken check (tenant <> 'default') not valid")
    assert (await scheduler.settler.run_once()).partitions == 255
    assert (await scheduler.settler.run_once()).partitions == 0
    assert caplog.text.count(f"settle_refused partition={id.bytes[15]}") == 1, "a line for the first failure"
    assert world.settled([id.bytes[15]]) == {world.minute - 1}
    assert sum(run[3] + 1 for run in shape(world, other)) == 5
    assert world.rows.of(id, "floor").timestamp() < world.minute + 10, "nor did a floor rise"
    world.rows.sql("alter table bucketd.runs drop constraint broken")
    await world.settle(scheduler)
    assert world.settled() == {world.minute + 179}
    assert sum(run[3] + 1 for run in shape(world, id)) == 5


async def test_an_older_epoch_settles_nothing(world: World) -> None:
    id = world.rows.every(30)
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    world.rows.sql("update bucketd.partitions set epoch = epoch + 1 where partition_id = %s", id.bytes[15])
    report = await scheduler.settler.run_once()
    assert report.partitions == 255
    assert shape(world, id) == []
    assert world.settled([id.bytes[15]]) == {world.minute - 1}


async def test_a_window_that_another_has_settled_is_not_settled_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes without ownership at the same minutes, one after the other and at once: the same rows as from one."""
    monkeypatch.setenv("BUCKETD_TEST_NO_OWNERSHIP", "1")
    ids = [world.rows.every(30, misfire=policy) for policy in ("run_once", "skip", "catch_up") for _ in range(5)]
    first, second = await world.scheduler(), await world.scheduler()
    for scheduler in (first, second):
        await scheduler.planner.run_once()
    await world.turn_to(world.minute + LOST_S)
    for scheduler in (first, second):
        await scheduler.planner.run_once()
        await world.drain(scheduler)
    await world.consume(confirm_fires=False)
    at_once = await asyncio.gather(world.settle(first), world.settle(second))
    reports = [*at_once, *[await world.settle(scheduler) for scheduler in (first, second)]]
    assert sum(report.partitions for report in reports) == 256, "each window once, whoever came first"
    assert world.settled() == {world.minute + 179}
    for id in ids:
        assert sum(run[3] + 1 for run in shape(world, id)) == 5
        floor = world.rows.of(id, "floor").timestamp()
        assert all(world.minute + run[0] >= int(floor) for run in shape(world, id))


async def test_runners_that_confirm_while_it_is_settled_meet_at_the_key(world: World) -> None:
    """Settling does not have to wait: half of the slots get their row first, all end with one."""
    id = world.rows.every(10, 5, misfire="catch_up")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 32)
    await world.drain(scheduler)
    await world.consume()
    await world.turn_to(world.minute + 62)
    await world.drain(scheduler)
    fires = len(await world.consume(confirm_fires=False))
    assert fires == 3
    report = await world.settle(scheduler)
    assert report.missing == 3
    assert [run[0] for run in shape(world, id)] == [5, 15, 25, 35, 45, 55]


async def test_a_hold_that_is_released_while_it_is_settled_keeps_nothing_for_ever(world: World) -> None:
    """Verdicts pin the holds that they see: a release comes before them, or finds their rows."""
    world.rows.sql("insert into bucketd.holds (scope) values ('all')")
    id = world.rows.every(30)
    scheduler = await world.scheduler()
    await lose(world, scheduler)
    dsn = world.settings.dsn.get_secret_value()
    async with await psycopg.AsyncConnection.connect(dsn) as client:
        await client.execute("delete from bucketd.holds")
        await drive_async(holds.judge(), client)
        settling = asyncio.create_task(world.settle(scheduler))
        await asyncio.wait({settling}, timeout=0.5)
        await client.commit()
        await settling
    assert {run[1] for run in shape(world, id)} == {"deferred"}
