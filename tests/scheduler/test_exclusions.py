"""Excluded dates on the way of a fire: planned, settled, expanded and confirmed as if the excluded instants were none."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from bucketd import Client, cron, every
from bucketd.scheduler.specbook import Instant, SpecBook
from bucketd.store.feed import SpecRow
from bucketd.timing import EverySpec, Spec, fires_between, next_fire, parse_cron, previous_fire
from tests.scheduler.world import World

DAY_S = 86_400
MIDNIGHT_S = 120  # of a test's clock
_EPOCH = date(1970, 1, 1)


@pytest.fixture(name="evening")
def _evening(world: World) -> World:
    """The test begins at 23:58 UTC; its third minute is of the next date."""
    now = world.rows.now()
    world.rows.turn_clock((DAY_S - MIDNIGHT_S - 30 - now) % DAY_S)
    world.begin()
    assert (world.minute + MIDNIGHT_S) % DAY_S == 0
    return world


def tomorrow(world: World) -> tuple[int, ...]:
    """The date that begins in the third minute, as a spec has it."""
    return ((world.minute + MIDNIGHT_S) // DAY_S,)


def today(world: World) -> tuple[int, ...]:
    return (world.minute // DAY_S,)


def crons(exclude: tuple[int, ...]) -> Spec:
    return replace(parse_cron("* * * * *")[0], exclude=exclude)


def shape(world: World, id: UUID) -> list[tuple[Any, ...]]:
    return [(at - world.minute, *rest) for at, *rest in world.rows.runs(id)]


async def test_nothing_is_planned_on_an_excluded_date(evening: World) -> None:
    world = evening
    before, behind, tokyo = (
        world.rows.schedule(EverySpec(20, tomorrow(world)), 7),
        world.rows.schedule(EverySpec(20, today(world)), 7),
        world.rows.schedule(EverySpec(20, tomorrow(world), "Asia/Tokyo"), 7),  # that date is there already, for 9 h
    )
    minutely = world.rows.schedule(crons(tomorrow(world)))
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    start = world.minute
    first = (7 - start) % 20
    all_ = [start + first + n * 20 for n in range(9)]
    assert [at for at in await world.planned(before) if at <= all_[-1]] == [
        at for at in all_ if at - start < MIDNIGHT_S
    ]
    assert [at for at in await world.planned(behind) if at <= all_[-1]] == [
        at for at in all_ if at - start >= MIDNIGHT_S
    ]
    assert await world.planned(tokyo) == []
    assert await world.planned(minutely) == [start, start + 60]


async def test_a_fire_knows_its_next_one_behind_the_excluded_date(evening: World) -> None:
    """A runner that gets it late asks whether the next one is due by now."""
    world = evening
    id = world.rows.schedule(EverySpec(20, tomorrow(world)), 0)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    fires = [fire for _, fire in (await world.buckets())[id.bytes[15]] if fire.schedule_id == id.bytes]
    assert [fire.next_s for fire in fires][-2:] == [20, 20 + DAY_S]


async def test_jitter_moves_due_and_not_the_date(evening: World) -> None:
    """Due after midnight, and yet of the evening; and the other way round."""
    world = evening
    ids = [
        world.rows.schedule(spec, 0, jitter_s=59)
        for _ in range(8)
        for spec in (EverySpec(60, tomorrow(world)), crons(tomorrow(world)))
    ]
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    for id in ids:
        assert set(await world.planned(id)) <= {world.minute, world.minute + 60}, "by scheduled_at"
        assert world.minute + 60 in await world.planned(id)


async def test_settling_gives_no_row_to_an_excluded_instant(evening: World) -> None:
    world = evening
    schedules = {
        "before": world.rows.schedule(EverySpec(20, tomorrow(world)), 0, misfire="catch_up"),
        "behind": world.rows.schedule(EverySpec(20, today(world)), 0, misfire="catch_up"),
        "latest": world.rows.schedule(EverySpec(20, tomorrow(world)), 0),
        "jitter": world.rows.schedule(EverySpec(60, tomorrow(world)), 0, misfire="catch_up", jitter_s=30),
        "cron": world.rows.schedule(crons(tomorrow(world)), misfire="catch_up"),
        "none": world.rows.schedule(EverySpec(20, (*today(world), *tomorrow(world))), 0, misfire="catch_up"),
    }
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 285)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    assert world.settled() == {world.minute + 239}
    found = {name: [row[0] for row in shape(world, id)] for name, id in schedules.items()}
    assert found["before"] == [20, 40, 60, 80, 100]
    assert found["behind"] == [120, 140, 160, 180, 200, 220]
    assert found["none"] == []
    assert found["jitter"] == [60]
    assert found["cron"] == [60]
    assert shape(world, schedules["latest"]) == [(100, "deferred", "settle", 4, "misfire")]


async def test_a_long_outage_over_an_excluded_date(evening: World) -> None:
    """The window is owed and expanded: two hours of it are left."""
    world = evening
    half_hour = EverySpec(1_800, tomorrow(world))
    once, all_ = world.rows.schedule(half_hour, 0), world.rows.schedule(half_hour, 0, misfire="catch_up")
    begin = (world.minute + MIDNIGHT_S) // DAY_S * DAY_S
    await world.turn_to(begin + DAY_S + 2 * 3_600 + 65)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    while (await scheduler.expander.run_once()).more:
        pass
    expected = [DAY_S + n * 1_800 for n in range(5)]
    assert [at + world.minute - begin for at, *_ in shape(world, all_)] == expected
    assert [(at + world.minute - begin, missed) for at, _, _, missed, _ in shape(world, once)] == [(expected[-1], 4)]


async def test_an_edit_of_a_calendar_loses_nothing_that_was_due_and_fires_nothing_of_the_past(world: World) -> None:
    dsn = world.settings.dsn.get_secret_value()
    world.rows.target()
    with Client(dsn) as client:
        client.calendars.put("bank", [])
        today = datetime.fromtimestamp(world.minute, UTC).date()
        gone = client.schedules.put(
            "gone", every(10, phase=5), target="sink", calendars=["bank"], misfire="catch_up", overlap="allow"
        ).id
        client.calendars.put("shut", [today, today + timedelta(days=1)])
        come = client.schedules.put(
            "come", every(10, phase=5), target="sink", calendars=["shut"], misfire="catch_up", overlap="allow"
        ).id
        minutely = client.schedules.put(
            "m", cron("* * * * *"), target="sink", calendars=["bank"], misfire="catch_up", overlap="allow"
        ).id
        scheduler = await world.scheduler()
        await scheduler.planner.run_once()
        assert await world.planned(come) == []
        await world.turn_to(world.minute + 62.5)
        client.calendars.put("bank", [today, today + timedelta(days=1)])
        client.calendars.put("shut", [])
    await scheduler.planner.run_once()
    assert min(await world.planned(come)) == world.minute + 65
    await world.turn_to(world.minute + 100)
    await world.drain(scheduler)
    await world.consume()
    await world.turn_to(world.minute + 122)
    await world.drain(scheduler)
    await world.consume()
    await world.settle(scheduler)
    assert [at for at, *_ in shape(world, gone)] == [5, 15, 25, 35, 45, 55], "due before the edit, all of them"
    assert [at for at, *_ in shape(world, minutely)] == [60]
    assert [at for at, *_ in shape(world, come)] == [65, 75, 85, 95, 105, 115], "none of before the edit"


@pytest.mark.parametrize("jitter_s", [0, 7])
@pytest.mark.parametrize("tz", ["UTC", "Asia/Tokyo", "America/Havana"])
@pytest.mark.parametrize("every_s", [1, 7, 60, 61, 3_600, DAY_S, 7 * DAY_S])
def test_the_book_tells_of_an_interval_what_the_engine_says(every_s: int, tz: str, jitter_s: int) -> None:
    """Minute by minute around both midnights of an excluded date, with the neighbours behind it."""
    middle = (date(2025, 11, 2) - _EPOCH).days
    spec, phase = EverySpec(every_s, (middle,), tz), 11 % every_s
    jitter_s %= every_s
    book = SpecBook()
    book.learn([SpecRow(1, "every", spec.rule(), jitter_s)])
    seen = 0
    for edge_s in range((middle - 1) * DAY_S, (middle + 3) * DAY_S, 3 * 3_600):
        for start_s in (edge_s, edge_s + 3_540):
            window = book.due(start_s, start_s + 60)
            due_phase = (phase + jitter_s) % every_s
            found = sorted(
                instant
                for due in window.ranges
                if due.lo <= due_phase < due.hi
                for instant in book.instants(due, due_phase, jitter_s, window)
            )
            wanted = [
                Instant(
                    at + jitter_s,
                    at,
                    at - _known(previous_fire(spec, at, phase)),
                    _known(next_fire(spec, at, phase)) - at,
                )
                for at in fires_between(spec, start_s - jitter_s, start_s + 60 - jitter_s, phase)
            ]
            assert found == wanted
            seen += len(wanted)
    assert seen or every_s >= DAY_S


def _known(at_s: int | None) -> int:
    assert at_s is not None
    return at_s


async def test_a_backfill_leaves_excluded_dates_out(evening: World) -> None:
    world = evening
    id = world.rows.schedule(EverySpec(20, today(world)), 0)
    await world.turn_to(world.minute + 300)
    scheduler = await world.scheduler()
    world.rows.sql(
        "insert into bucketd.backfills (kind, from_at, until_at) values ('user', to_timestamp(%s), to_timestamp(%s))",
        world.minute, world.minute + 240,
    )  # fmt: skip
    while (await scheduler.expander.run_once()).more:
        pass
    assert [at for at, *_ in shape(world, id)] == [120, 140, 160, 180, 200, 220]
