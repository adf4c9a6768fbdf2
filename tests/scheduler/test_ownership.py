"""Lease -> epoch -> fence: who works, whose work counts, and what happens when Redis forgets."""

import asyncio

import pytest

from bucketd.embedded import Server
from bucketd.scheduler.node import Scheduler
from bucketd.store import scripts
from bucketd.store.buckets import BucketId, Fence, drain
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import PARTITIONS
from tests.scheduler.world import World
from tests.support.waiting import wait_until


def owned(scheduler: Scheduler) -> set[int]:
    return set(scheduler.node.owned)


def epochs(world: World) -> dict[int, int]:
    return dict(world.rows.sql("select partition_id, epoch from bucketd.partitions"))


async def lose_leases(world: World) -> None:
    """As when they expire."""
    await world.redis.delete(*[world.keys.lease(p) for p in range(PARTITIONS)])


async def test_two_nodes_share_and_level(world: World) -> None:
    first = await world.scheduler()
    assert owned(first) == set(range(PARTITIONS))
    second = await world.scheduler()
    assert owned(second) == set(), "what is leased is not taken"
    report = await first.ownership.run_once()
    assert report.nodes == 2
    assert report.released == PARTITIONS - report.owned > 100
    await second.ownership.run_once()
    assert owned(first) | owned(second) == set(range(PARTITIONS))
    assert not owned(first) & owned(second)
    assert max(len(owned(first)), len(owned(second))) <= 141  # ceil(1.1 * 128)
    assert world.rows.sql("select count(*), count(distinct owner) from bucketd.partitions") == [(256, 2)]
    for scheduler in (first, second):
        again = await scheduler.ownership.run_once()
        assert (again.taken, again.released, again.lost) == (0, 0, 0), "a level ring stays as it is"


async def test_each_take_has_a_new_epoch_and_its_fence(world: World) -> None:
    first = await world.scheduler()
    assert set(epochs(world).values()) == {1}
    second = await world.scheduler()
    await first.ownership.run_once()
    await second.ownership.run_once()
    found = epochs(world)
    for partition in range(PARTITIONS):
        moved = partition in owned(second)
        assert found[partition] == (2 if moved else 1)
        holder = (second if moved else first).node
        fence = await world.redis.hmget(world.keys.fence(partition), "epoch", "token")
        assert fence == [str(found[partition]).encode(), holder.id.hex.encode()]
        assert holder.owned[partition].epoch == found[partition]


async def test_a_graceful_leave_frees_everything_at_once(world: World) -> None:
    first, second = await world.scheduler(), await world.scheduler()
    await first.ownership.run_once()
    await second.ownership.run_once()
    await first.ownership.leave()
    assert owned(first) == set()
    report = await second.ownership.run_once()
    assert (report.nodes, report.owned) == (1, PARTITIONS)
    assert world.rows.one("select count(*) from bucketd.partitions where owner = %s", first.node.id) == 0


async def test_leaving_wins_over_a_look_at_the_ring_that_is_under_way(world: World) -> None:
    """SIGTERM comes at any moment; a look that goes on after the leave would take it all back for a whole TTL."""
    scheduler = await world.scheduler()
    for turns in range(10):
        await lose_leases(world)  # so that the look has something to take
        look = asyncio.create_task(scheduler.ownership.run_once())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.gather(look, scheduler.ownership.leave(), scheduler.ownership.run_once())
        held = [p for p in range(PARTITIONS) if await world.redis.exists(world.keys.lease(p))]
        assert held == []
        assert await world.redis.zcard(world.keys.members) == 0
        assert owned(scheduler) == set()
        scheduler = await world.scheduler()


async def test_an_expired_lease_is_taken_over_and_the_late_renewal_finds_it_lost(world: World) -> None:
    first = await world.scheduler(lease_ttl_s=1.0, lease_renew_s=0.3, lease_margin_s=0.2)
    second = await world.scheduler(own=False)

    async def taken() -> bool:
        await world.redis.zrem(world.keys.members, first.node.id.hex)  # it says nothing any more
        return (await second.ownership.run_once()).owned == PARTITIONS

    began = monotonic()
    await wait_until(taken, 5, "the leases to expire")
    assert monotonic() - began > 0.5, "not before they expire"
    assert first.node.believed() == [], "the first stopped believing before the second could take"
    report = await first.ownership.run_once()
    assert report.lost == PARTITIONS
    assert owned(first) == set()
    assert set(epochs(world).values()) == {2}


async def test_belief_ends_before_the_lease(world: World) -> None:
    scheduler = await world.scheduler()
    node, settings = scheduler.node, scheduler.node.settings
    longest = max(p.believed_until for p in node.owned.values())
    lease_s = await world.redis.pttl(world.keys.lease(0)) / 1000
    assert longest - monotonic() <= lease_s - settings.lease_margin_s + 0.1
    for partition in node.owned.values():
        partition.believed_until = monotonic() - 1
    assert node.believed() == []
    assert await world.drain(scheduler) == 0


async def test_a_zombie_forfeits_what_a_newer_owner_fenced(world: World) -> None:
    id = world.rows.every(5)
    zombie = await world.scheduler()
    await zombie.planner.run_once()
    await lose_leases(world)
    await world.redis.delete(world.keys.members)
    heir = await world.scheduler()  # the zombie still believes
    assert heir.node.owned.keys() == set(range(PARTITIONS))
    await world.turn_to(world.minute + 30)
    assert await world.drain(zombie) == 0
    assert zombie.node.counts["forfeited"] >= 1
    assert id.bytes[15] not in owned(zombie)
    before = await world.buckets()
    assert len(before[id.bytes[15]]) == 36, "it moved nothing"
    assert await world.drain(heir) == 7


async def test_a_zombies_plan_is_refused_and_moves_no_fence(world: World) -> None:
    zombie = await world.scheduler()
    await lose_leases(world)
    await world.redis.delete(world.keys.members)
    heir = await world.scheduler()
    fences = [await world.redis.hgetall(world.keys.fence(p)) for p in range(PARTITIONS)]
    await zombie.planner.run_once()
    assert owned(zombie) == set()
    assert [await world.redis.hgetall(world.keys.fence(p)) for p in range(PARTITIONS)] == fences
    assert len(owned(heir)) == PARTITIONS


async def test_a_zombie_does_not_settle(world: World) -> None:
    world.rows.every(5)
    zombie = await world.scheduler()
    await zombie.planner.run_once()
    await lose_leases(world)
    await world.redis.delete(world.keys.members)
    await world.scheduler()
    await world.turn_to(world.minute + 62)
    for partition in zombie.node.owned.values():
        partition.buckets.clear()
    assert (await zombie.settler.run_once()).partitions == 0
    assert world.settled() == {world.minute - 1}


@pytest.fixture
def own_settings(settings: Settings, own_redis: Server) -> Settings:
    """A Redis that may be flushed."""
    return Settings.load({}, dsn=settings.dsn.get_secret_value(), redis_url=own_redis.url, redis_prefix="own")


async def test_after_a_flush_everything_is_taken_again_and_planned_anew(world: World, own_settings: Settings) -> None:
    await world.redis.aclose()
    world = World(own_settings, world.rows.connection)
    world.rows.sql("update bucketd.partitions set settled_through = to_timestamp(%s)", world.minute - 1)
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 25)
    await world.redis.flushall()
    assert await world.drain(scheduler) == 0
    assert scheduler.node.wake_owner.is_set(), "a drain that found the fence missing does not wait for the period"
    await scheduler.ownership.run_once()
    assert len(owned(scheduler)) == PARTITIONS
    assert epochs(world)[id.bytes[15]] == 2
    await scheduler.planner.run_once()
    assert await world.planned(id) == list(range(world.minute, world.minute + 180, 10))
    await world.drain(scheduler)
    await world.consume()
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [10, 20]
    await world.close()


async def test_a_lost_last_second_is_noticed(world: World) -> None:
    """Redis came back with an older copy: the fence is there, but a plan that it acknowledged is not."""
    id = world.rows.every(10)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    partition = scheduler.node.owned[id.bytes[15]]
    await world.redis.hset(world.keys.fence(partition.id), "plan_seq", partition.plan_seq - 1)
    await world.redis.delete(world.keys.bucket(partition.id, world.minute // 60))
    await world.turn_to(world.minute + 25)
    assert await world.drain(scheduler) == 0
    await scheduler.ownership.run_once()
    assert scheduler.node.owned[id.bytes[15]].epoch == 2
    assert not partition.owned, "who holds the old object sees it"
    assert sum(epoch == 2 for epoch in epochs(world).values()) == 1, "only what lost data is taken again"
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.consume()
    assert [at - world.minute for at, *_ in world.rows.runs(id)] == [10, 20]


async def test_the_new_epoch_is_above_the_fence_though_postgres_is_older(world: World) -> None:
    """Postgres was restored: its epochs went back, those in Redis did not."""
    await scripts.run(world.redis, "fence", [world.keys.fence(7)], [41, "somebody"])
    scheduler = await world.scheduler()
    assert epochs(world)[7] == 42
    assert scheduler.node.owned[7].epoch == 42
    assert await world.redis.hget(world.keys.fence(7), "epoch") == b"42"


async def test_the_last_owner_is_a_zombie_from_the_take_on(world: World) -> None:
    scheduler = await world.scheduler(own=False)
    await world.redis.hset(world.keys.fence(7), mapping={"epoch": 5, "token": "you", "plan_seq": 3})
    world.rows.sql("update bucketd.partitions set epoch = 4 where partition_id = 7")
    await scheduler.ownership.run_once()
    assert scheduler.node.owned[7].epoch == 6
    found = await drain(
        world.redis, world.keys, [(Fence(7, 5, "you", 3), BucketId(7, 1))], 0, batch=1, queue_cap=1_000, compare=True
    )
    assert found[0].state.name == "ZOMBIE"


async def test_a_cordoned_node_hands_over_everything(world: World) -> None:
    first, second = await world.scheduler(), await world.scheduler()
    await world.redis.hset(world.keys.weights, first.node.id.hex, "0")
    assert (await first.ownership.run_once()).released == PARTITIONS
    assert (await second.ownership.run_once()).owned == PARTITIONS


async def test_without_ownership_every_node_works_on_everything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_TEST_NO_OWNERSHIP", "1")
    first, second = await world.scheduler(), await world.scheduler()
    assert owned(first) == owned(second) == set(range(PARTITIONS))
    assert len(first.node.believed()) == PARTITIONS
    assert set(epochs(world).values()) == {0}
    assert not await world.redis.exists(world.keys.lease(0))
    await first.ownership.leave()
    await second.ownership.run_once()
    assert owned(second) == set(range(PARTITIONS))
