"""A spec that cannot be computed stops nobody else: it is set aside, told of once, and fires again when it can be computed."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from bucketd.scheduler.node import Scheduler
from bucketd.store import quarantine
from bucketd.store.operation import drive
from bucketd.timing import CronSpec, EverySpec, load_rule, parse_cron
from tests.scheduler.world import World

MINUTELY = parse_cron("* * * * *")[0].rule()


def altered(**parts: Any) -> str:
    """The rule of each minute with other parts, as canonical text."""
    return json.dumps(json.loads(MINUTELY) | parts, sort_keys=True, separators=(",", ":"))


# The loader compares numbers by value, so this rule gets past it; what it matches, in another half of the year, is no whole day.
RAISES = altered(month=[(datetime.now(UTC).month + 5) % 12 + 1], days="either", dom=[], dow=[], dow_nth=[[1.0, 2]])
BAD: dict[str, tuple[str, str, int | None]] = {
    "unknown zone": ("cron", altered(tz="Mars/Olympus"), None),
    "no JSON": ("cron", MINUTELY[:-1], None),
    "no hours": ("cron", altered(hour=[]), None),
    "minute 61": ("cron", altered(minute=[61]), None),
    "wrong kind": ("cron", EverySpec(60).rule(), None),
    "longer than its column": ("every", EverySpec(2**40).rule(), 60),
    "raises": ("cron", RAISES, None),
}


def bad_specs(world: World) -> dict[str, int]:
    """Their ids; written by raw SQL, as nobody but bucketd should."""
    statement = "insert into bucketd.specs (kind, rule, every_s) values (%s, %s, %s) returning spec_id"
    return {name: world.rows.one(statement, *columns) for name, columns in BAD.items()}


def schedule(world: World, spec_id: int, **columns: Any) -> UUID:
    """A schedule of a spec by its id."""
    id = world.rows.every(3_600, **columns)
    world.rows.sql("update bucketd.schedules set spec_id = %s, phase = 0 where id = %s", spec_id, id)
    return id


def marked(world: World) -> dict[int, str]:
    return dict(world.rows.sql("select spec_id, error from bucketd.specs where error is not null"))


async def lose(world: World, scheduler: Scheduler, until_s: int) -> None:
    """What was planned until then is gone, and nothing of it confirmed."""
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + until_s)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)


def test_the_rule_that_raises_is_one_that_loads() -> None:
    assert isinstance(load_rule(RAISES), CronSpec)


async def test_the_others_are_planned_and_the_bad_ones_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    m = world.minute
    specs = bad_specs(world)
    ids = [schedule(world, spec_id, jitter_s=jitter_s) for spec_id in specs.values() for jitter_s in (0, 30)]
    cron, every, once = world.rows.cron("* * * * *"), world.rows.every(30), world.rows.at(m + 50)
    jittered = world.rows.cron("* * * * *", "Asia/Kathmandu", jitter_s=10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    assert await world.planned(cron) == [m, m + 60, m + 120]
    assert await world.planned(every) == [m + 30 * n for n in range(6)]
    assert await world.planned(once) == [m + 50]
    assert {m, m + 60} <= set(await world.planned(jittered))
    assert [await world.planned(id) for id in ids] == [[]] * len(ids)
    errors = marked(world)
    assert set(errors) == set(specs.values())
    assert "Mars/Olympus" in errors[specs["unknown zone"]]
    assert errors[specs["raises"]].startswith("TypeError: ")
    assert scheduler.node.counts["quarantined"] == len(BAD)
    assert caplog.text.count("spec_quarantined") == len(BAD)
    versions = world.rows.sql("select xmin::text from bucketd.specs order by spec_id")
    await world.turn_to(m + 60)
    await scheduler.planner.run_once()
    assert await world.planned(cron) == [m + 60 * n for n in range(4)]
    assert world.rows.sql("select xmin::text from bucketd.specs order by spec_id") == versions
    assert caplog.text.count("spec_quarantined") == len(BAD)


async def test_a_bad_spec_that_is_written_later_is_set_aside_beside_the_feed(world: World) -> None:
    cron = world.rows.cron("* * * * *")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    specs = bad_specs(world)
    bad = schedule(world, specs["raises"])
    soon = world.rows.at(world.minute + 40)
    report = await scheduler.planner.run_once()
    assert await world.planned(soon) == [world.minute + 40]
    assert report.from_feed >= 1
    assert await world.planned(bad) == []
    await world.turn_to(world.minute + 60)
    await scheduler.planner.run_once()
    assert len(await world.planned(cron)) == 4
    assert set(marked(world)) == set(specs.values())


@pytest.mark.parametrize("until_s", [125, 640])
async def test_their_slots_are_passed_over_and_the_watermark_moves_on(world: World, until_s: int) -> None:
    """At 640 s the window is owed and expanded, at 125 s it is settled at once."""
    bad = [schedule(world, spec_id) for spec_id in bad_specs(world).values()]
    good = world.rows.cron("* * * * *"), world.rows.every(30, misfire="catch_up")
    scheduler = await world.scheduler()
    await lose(world, scheduler, until_s)
    await world.settle(scheduler)
    while (await scheduler.expander.run_once()).more:
        pass
    assert world.settled() == {world.minute + until_s // 60 * 60 - 1}
    assert world.rows.one("select count(*) from bucketd.backfills where finished_at is null or error is not null") == 0
    assert [world.rows.runs(id) for id in bad] == [[]] * len(bad)
    assert all(world.rows.runs(id) for id in good)
    assert len(world.rows.runs(good[1])) == (until_s // 60 * 60 - 1) // 30


async def test_a_backfill_of_everything_leaves_them_out(world: World) -> None:
    bad = [schedule(world, spec_id) for spec_id in bad_specs(world).values()]
    good = world.rows.every(30)
    scheduler = await world.scheduler()
    world.rows.sql(
        "insert into bucketd.backfills (kind, from_at, until_at) values ('user', to_timestamp(%s), to_timestamp(%s))",
        world.minute - 600, world.minute,
    )  # fmt: skip
    while (await scheduler.expander.run_once()).more:
        pass
    assert len(world.rows.runs(good)) == 20
    assert [world.rows.runs(id) for id in bad] == [[]] * len(bad)
    await scheduler.planner.run_once()
    assert len(marked(world)) == len(BAD)


async def test_a_window_that_is_owed_passes_them_over_before_any_minute_was_planned(world: World) -> None:
    bad = [schedule(world, spec_id) for spec_id in bad_specs(world).values()]
    good = world.rows.every(30, misfire="catch_up")
    await world.turn_to(world.minute + 640)
    scheduler = await world.scheduler()
    world.rows.sql(
        "insert into bucketd.backfills (kind, partition_id, from_at, until_at)"
        " select 'settle', p, to_timestamp(%s), to_timestamp(%s) from generate_series(0, 255) p",
        world.minute, world.minute + 599,
    )  # fmt: skip
    while (await scheduler.expander.run_once()).more:
        pass
    assert len(world.rows.runs(good)) == 19
    assert [world.rows.runs(id) for id in bad] == [[]] * len(bad)
    assert list(scheduler.node.book.errors)


async def test_a_later_process_that_can_compute_it_releases_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    spec_id = bad_specs(world)["unknown zone"]
    id = schedule(world, spec_id)
    await (await world.scheduler()).planner.run_once()
    assert spec_id in marked(world)
    kept = marked(world).keys() - {spec_id}
    # As after an upgrade of the zones: the text is the same, and this code can read it.
    world.rows.sql("update bucketd.specs set rule = %s where spec_id = %s", altered(tz="Asia/Tokyo"), spec_id)
    await world.schedulers[0].ownership.leave()
    assert "spec_released" not in caplog.text
    second = await world.scheduler()
    await second.planner.run_once()
    assert marked(world).keys() == kept
    assert world.rows.sql("select failed_at from bucketd.specs where spec_id = %s", spec_id) == [(None,)]
    assert caplog.text.count("spec_released") == 1
    assert set(await world.planned(id)) >= {world.minute + 60, world.minute + 120}


async def test_a_later_process_that_fails_alike_counts_it_and_writes_nothing(world: World) -> None:
    bad_specs(world)
    await (await world.scheduler()).planner.run_once()
    versions = world.rows.sql("select xmin::text, failed_at from bucketd.specs order by spec_id")
    await world.schedulers[0].ownership.leave()
    second = await world.scheduler()
    await second.planner.run_once()
    assert second.node.counts["quarantined"] == len(BAD)
    assert world.rows.sql("select xmin::text, failed_at from bucketd.specs order by spec_id") == versions


async def test_a_rule_that_was_mended_is_computed_by_the_same_process(world: World) -> None:
    spec_id = bad_specs(world)["raises"]
    id = schedule(world, spec_id)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    assert spec_id in marked(world)
    world.rows.sql(
        "update bucketd.specs set rule = %s, change_xid = pg_current_xact_id() where spec_id = %s",
        altered(tz="Asia/Tokyo"), spec_id,
    )  # fmt: skip
    await world.turn_to(world.minute + 60)
    await scheduler.planner.run_once()
    assert spec_id not in marked(world)
    assert await world.planned(id) == [world.minute + 180], "minutes that were planned without it stay so"


def test_what_failed_is_listed_with_how_many_schedules_wait(world: World) -> None:
    first, second, *_ = bad_specs(world).values()
    for _ in range(3):
        schedule(world, second)
    world.rows.sql(
        "update bucketd.specs set error = 'E: x', failed_at = now() where spec_id in (%s, %s)", first, second
    )
    found = drive(quarantine.failed(10), world.rows.connection)
    assert [(spec.spec_id, spec.error, spec.schedules) for spec in found] == [(first, "E: x", 0), (second, "E: x", 3)]
    assert [spec.spec_id for spec in drive(quarantine.failed(1), world.rows.connection)] == [first]
