"""Settling a window in which a schedule stood still."""

from tests.scheduler.world import World


async def test_what_lay_in_a_pause_is_not_found_missing(world: World) -> None:
    """By the floor, which a resume raises: a pause and its end are no edit of timing, so no version says that it stood still."""
    id = world.rows.every(20, 5, misfire="catch_up")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    for second, paused in ((50, True), (130, False)):
        await world.turn_to(world.minute + second)
        world.rows.sql("update bucketd.schedules set paused = %s where id = %s", paused, id)
    await world.turn_to(world.minute + 205)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    assert world.settled() == {world.minute + 179}
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [145, 165], (
        "5 .. 45 lay before the pause, unconfirmed"
    )
