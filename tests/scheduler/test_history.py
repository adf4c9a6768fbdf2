"""Another history of Postgres (a standby was promoted, a dump restored): nothing that was taken from the old one is trusted."""

from bucketd.scheduler.node import Scheduler
from bucketd.store import partitions
from bucketd.timing import EverySpec
from tests.scheduler.world import World

BEGIN_ANOTHER = """
create or replace function bucketd.history() returns text language sql stable as $$ select '1/1/0000000B' $$"""


async def fences(world: World, scheduler: Scheduler) -> list[int]:
    return [int(await world.redis.hget(scheduler.node.keys.fence(p), "epoch") or 0) for p in range(256)]


async def epochs(world: World) -> list[int]:
    return [row[0] for row in world.rows.sql("select epoch from bucketd.partitions order by partition_id")]


async def test_partitions_are_taken_again_above_the_fence(world: World) -> None:
    """The takes of the last owner are among what was lost."""
    scheduler = await world.scheduler()
    for _ in range(3):
        for partition in scheduler.node.owned.values():
            scheduler.ownership.suspect(partition)
        await scheduler.ownership.run_once()
    before = await fences(world, scheduler)
    assert min(before) >= 4
    world.rows.sql(
        "update bucketd.partitions set epoch = 1, owner = null, settled_through = settled_through - interval '2 min'"
    )
    old = dict(scheduler.node.owned)
    await scheduler.ownership.run_once()
    assert scheduler.node.owned == old, "the same history: what Postgres says of owners is for people"
    world.rows.sql(BEGIN_ANOTHER)
    await scheduler.ownership.run_once()
    assert await epochs(world) == await fences(world, scheduler) == [epoch + 1 for epoch in before]
    assert not any(partition.owned for partition in old.values())
    settled = {partition.settled_through_s for partition in scheduler.node.owned.values()}
    assert settled == world.settled()
    await scheduler.ownership.run_once()
    assert await epochs(world) == [epoch + 1 for epoch in before], "once for each history"


async def test_fires_of_an_edit_that_was_lost_are_taken_back(world: World) -> None:
    """Its version number is given out again. In a later history its fires would pass for those of another edit."""
    scheduler = await world.scheduler()
    kept, edited = world.rows.every(60, 7), world.rows.every(60, 9)
    await scheduler.planner.run_once()
    assert await world.planned(edited)
    world.rows.sql(BEGIN_ANOTHER)
    world.rows.sql("update bucketd.schedules set phase = 19 where id = %s", edited)
    await scheduler.ownership.run_once()
    await scheduler.planner.run_once()
    assert {at % 60 for at in await world.planned(edited)} == {19}
    assert {at % 60 for at in await world.planned(kept)} == {7}


async def test_so_does_the_next_owner_if_nobody_saw_it_happen(world: World) -> None:
    first = await world.scheduler()
    edited = world.rows.every(60, 9)
    await first.planner.run_once()
    await first.ownership.leave()
    world.rows.sql(BEGIN_ANOTHER)
    world.rows.sql("update bucketd.schedules set phase = 19 where id = %s", edited)
    second = await world.scheduler()
    await second.planner.run_once()
    assert {at % 60 for at in await world.planned(edited)} == {19}


async def test_specs_are_learned_anew_where_ids_were_given_out_again(world: World) -> None:
    """However many transactions the new history is ahead by the time somebody looks."""
    scheduler = await world.scheduler()
    id = world.rows.every(77, 5)
    await scheduler.planner.run_once()
    spec = world.rows.of(id, "spec_id")
    world.rows.sql(BEGIN_ANOTHER)
    world.rows.sql(
        "alter table bucketd.specs disable trigger all"
    )  # as it looks to a cursor that is ahead: not written since
    world.rows.sql("update bucketd.specs set rule = %s where spec_id = %s", EverySpec(50).rule(), spec)
    world.rows.sql("alter table bucketd.specs enable trigger all")
    await scheduler.planner.run_once()
    assert scheduler.node.book.spec(spec) == EverySpec(50)


async def test_a_cursor_of_another_server_hides_nothing(world: World) -> None:
    scheduler = await world.scheduler()
    world.rows.sql("update bucketd.partitions set feed_snapshot = '99999999:99999999:', history = 'another'")
    async with scheduler.node.pool.connection() as connection:
        (taken,) = await partitions.take(connection, scheduler.node.id, {5: 7})
        assert taken.feed_snapshot != "99999999:99999999:"
        assert (taken.epoch, taken.same_history) == (8, False)
        (again,) = await partitions.take(connection, scheduler.node.id, {5: 7})
        assert (again.epoch, again.same_history) == (9, False), "nobody has deleted yet what Redis has of the other one"
        await partitions.trust(connection, again.history, [5])
        (trusted,) = await partitions.take(connection, scheduler.node.id, {5: 7})
        assert trusted.same_history
