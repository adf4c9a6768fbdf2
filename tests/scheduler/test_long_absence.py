"""Longer away than days of runs are made ahead, and than they are kept."""

from tests.scheduler.world import World

DAY_S = 86_400


async def expand(world: World, for_s: int) -> None:
    """Nobody was there for so long; then a node settles and expands, before retention has come to it."""
    await world.turn_to(world.minute + for_s)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    while (await scheduler.expander.run_once()).more:
        pass


async def test_days_that_are_not_there_yet_are_made_by_the_first_who_needs_them(world: World) -> None:
    """Else verdicts had no day to be written in: what is owed would be refused, and so lost."""
    id = world.rows.cron("0 * * * *", misfire="skip")
    await expand(world, 20 * DAY_S + 90)
    assert world.rows.sql("select error from bucketd.backfills where error is not null") == []
    ((_, status, _, missed, _),) = world.rows.runs(id)
    assert (status, missed) == ("skipped", 20 * 24 - 1)
    assert world.rows.one("select count(*) from bucketd.backfills where finished_at is null") == 0


async def test_slots_below_retention_are_counted_and_get_no_row(world: World) -> None:
    """A thousand are listed, and those on days that were let go could not be written: they are in the count all the same."""
    hourly, gone = world.rows.cron("0 * * * *"), world.rows.at(world.minute + DAY_S)
    world.rows.sql(
        "update bucketd.cluster set retention_floor = to_timestamp(%s), days_from = to_timestamp(%s)",
        *[(world.minute + 10 * DAY_S) // DAY_S * DAY_S] * 2,
    )
    await expand(world, 20 * DAY_S + 90)
    ((_, status, _, missed, _),) = world.rows.runs(hourly)
    assert (status, missed) == ("deferred", 20 * 24 - 1)
    assert world.rows.runs(gone) == []
