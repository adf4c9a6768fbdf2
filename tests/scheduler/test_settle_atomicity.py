"""Verdicts, floors and watermark stand or fall together: settling that breaks off at its last step leaves nothing behind."""

from tests.scheduler.world import World

AWAY_S = 205  # each slot of the first three minutes is over 60 s late


async def test_verdicts_do_not_stand_without_their_watermark(world: World) -> None:
    """Else the next pass finds the newest slot with its row, and counts the older ones again beside it."""
    id = world.rows.every(30)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + AWAY_S)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    world.rows.sql(
        f"alter table bucketd.partitions add constraint stuck check (settled_through < to_timestamp({world.minute})) not valid"
    )
    before = world.everything()
    assert (await scheduler.settler.run_once()).partitions == 0
    assert world.settled() == {world.minute - 1}
    assert world.everything() == before
    world.rows.sql("alter table bucketd.partitions drop constraint stuck")
    await world.settle(scheduler)
    assert world.settled() == {world.minute + 179}
    assert sum(run[3] + 1 for run in world.rows.runs(id)) == 5
