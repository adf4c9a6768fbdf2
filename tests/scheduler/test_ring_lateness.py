"""How late a node says that it drained: from when a fire was due, and nothing where it only guesses when that was."""

from bucketd.store.clock import monotonic
from tests.scheduler.world import World

BUSY_MS = 9_000  # what a busy machine may add


async def test_lateness_counts_from_the_fire_that_was_due(world: World) -> None:
    world.rows.every(20)
    former = await world.scheduler()
    await former.planner.run_once()
    await world.drain(former)  # now it knows when the next one is due
    await world.turn_to(world.minute + 22.5)
    assert await world.drain(former) == 1
    late = former.node.traffic.lateness(monotonic())
    assert late is not None
    assert 2_500 <= late[0] == late[1] < 2_500 + BUSY_MS
    await world.turn_to(world.minute + 45)
    await former.ownership.leave()
    heir = await world.scheduler()
    assert await world.drain(heir) == 1
    assert heir.node.traffic.lateness(monotonic()) is None, (
        "it looked into the buckets of the last minutes: what was in there?"
    )
    await heir.planner.run_once()
    assert await world.drain(heir) > 0, (
        "what was written lately is planned again, and need not have been drained before"
    )
    assert heir.node.traffic.lateness(monotonic()) is None
    await world.turn_to(world.minute + 61.5)
    assert await world.drain(heir) == 1
    late = heir.node.traffic.lateness(monotonic())
    assert late is not None
    assert 1_500 <= late[0] == late[1] < 1_500 + BUSY_MS
