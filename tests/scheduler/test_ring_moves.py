"""Nodes that run, and what operators do to them: drains, moves in steps, undo, a plan by measured load, a node that takes nothing."""

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from bucketd.ring.access import Access, access
from bucketd.ring.drain import drain
from bucketd.ring.plan import AIM
from bucketd.ring.reading import look
from bucketd.ring.steps import Mover, Placement, placements, restored
from bucketd.ring.survey import survey
from bucketd.ring.who import find
from bucketd.scheduler.node import Scheduler
from bucketd.scheduler.ring import owners
from bucketd.store import members
from bucketd.store import ring as words
from bucketd.store.errors import Conflict
from bucketd.store.keys import PARTITIONS
from tests.scheduler.world import World
from tests.support.waiting import wait_until

NAMES = ("one", "two", "three")
HOT = 8  # partitions with a schedule a second


class Ring:
    """Three nodes in the test's loop, and a look from outside."""

    def __init__(self, world: World, stores: Access, changes: dict[str, float]) -> None:
        self.world = world
        self._changes = changes
        self.stores = stores
        self.nodes: dict[str, Scheduler] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str) -> None:
        node = self.nodes[name] = await self.world.scheduler(own=False, node_name=name, **self._changes)
        self._running[name] = asyncio.create_task(node.run())
        await wait_until(lambda: self._has_joined(name), 20, f"node {name} to join")

    async def _has_joined(self, name: str) -> bool:
        return self.id(name) in (await self.stores.members()).nodes

    async def stop(self, name: str) -> None:
        self.nodes[name].node.stop.set()
        await self._running.pop(name)

    async def level(self) -> None:
        """Until every partition is where the ring wants it."""
        await wait_until(self._is_level, 20, "a level ring")

    async def _is_level(self) -> bool:
        wanted = owners(await self.stores.members())
        return len(wanted) == PARTITIONS and wanted == self.owners()

    def owners(self) -> dict[int, str]:
        return {
            p: node.node.id.hex for name, node in self.nodes.items() if name in self._running for p in node.node.owned
        }

    def id(self, name: str) -> str:
        return self.nodes[name].node.id.hex

    def of(self, name: str) -> list[int]:
        return sorted(self.nodes[name].node.owned)

    async def close(self) -> None:
        await asyncio.gather(*map(self.stop, list(self._running)))


@pytest_asyncio.fixture
async def ring(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    async with access(world.settings) as stores:
        ring = Ring(world, stores, getattr(request, "param", {}))
        for name in NAMES:
            await ring.start(name)
        await ring.level()
        try:
            yield ring
        finally:
            await ring.close()


def nothing(done: int, total: int) -> None:
    """Nobody watches."""


def unowned_s(caplog: pytest.LogCaptureFixture) -> list[float]:
    """How long partitions were nobody's, as their takers say."""
    return [float(found[1]) for found in re.finditer(r"ring .* unowned_s=([0-9.]+)", caplog.text)]


# So seldom does a node look by itself: whatever takes less than a second here was told.
@pytest.mark.parametrize("ring", [{"lease_renew_s": 8.0}], indirect=True)
async def test_a_drained_node_owns_nothing_and_comes_back(ring: Ring, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bucketd")
    stores, had = ring.stores, ring.of("two")
    progress: list[tuple[int, int]] = []
    meant = find("two", await stores.members())
    found = await drain(stores, meant, timeout_s=20, force=False, report=lambda *now: progress.append(now))
    assert found.over
    assert found.had == len(had) > 50
    assert progress[-1] == (len(had), len(had))
    assert ring.of("two") == []
    gaps = await wait_until(lambda: unowned_s(caplog), 10, "the takers to say how long it was nobody's")
    assert max(gaps) < 1.0
    states = {node.name: node.state for node in (await look(stores)).nodes}
    assert states == {"one": "active", "two": "cordoned", "three": "active"}
    # The next one of that name is cordoned too, until the word is taken back.
    await ring.stop("two")
    await ring.start("two")
    assert ring.of("two") == []
    await words.uncordon(stores.redis, stores.keys, [meant.about])
    await ring.level()
    assert len(ring.of("two")) > 50
    # That of an incarnation goes with it.
    old = ring.id("two")
    await drain(stores, find(old[:10], await stores.members()), timeout_s=20, force=False, report=nothing)
    await ring.stop("two")
    await ring.start("two")
    await wait_until(lambda: len(ring.of("two")) > 50, 10, "the next two to get its share")
    caplog.clear()
    await ring.stop("one")
    await ring.level()
    gaps = await wait_until(lambda: unowned_s(caplog), 10, "the takers to say so again")
    assert max(gaps) < 1.0, "a stop hands over as fast"
    assert old not in (await stores.members()).words.cordons
    await drain(stores, find("three", await stores.members()), timeout_s=20, force=False, report=nothing)
    with pytest.raises(Conflict, match="no other node"):
        await drain(stores, find("two", await stores.members()), timeout_s=20, force=False, report=nothing)
    assert len(ring.of("two")) == PARTITIONS
    forced = await drain(stores, find("two", await stores.members()), timeout_s=20, force=True, report=nothing)
    assert (forced.over, forced.had, len((await look(stores)).unowned)) == (True, PARTITIONS, PARTITIONS)
    assert all(p.unowned_s is not None and p.unowned_s < 30 for p in (await look(stores)).unowned)


async def test_a_ring_at_work(ring: Ring) -> None:
    """One ring for all that leaves it as it was: nodes take longer to start than these take."""
    await moves_go_in_steps_stop_between_them_and_can_be_undone(ring)
    await a_step_that_does_not_arrive_is_put_back(ring)
    await one_moves_at_a_time(ring)
    await a_plan_levels_the_load_that_was_measured(ring)


async def moves_go_in_steps_stop_between_them_and_can_be_undone(ring: Ring) -> None:
    stores, before = ring.stores, ring.owners()
    chosen = [*ring.of("one")[:8], *ring.of("two")[:12]]
    members_ = await stores.members()
    wanted = placements(members_, dict.fromkeys(chosen, ring.id("three")))
    assert {placement.about for placement in wanted} == {"@three"}
    seen: list[int] = []
    stop = asyncio.Event()

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if done > 8:  # in the second step
            stop.set()

    outcome = await Mover(stores, interrupt, stop, step=8, timeout_s=20, undo=True).place(wanted)
    assert outcome.problem is None
    assert [p.partition for p in outcome.done] == chosen[:16]
    assert seen == sorted(seen)
    assert seen[-1] == 16
    moved = before | dict.fromkeys(chosen[:16], ring.id("three"))
    assert owners(await stores.members()) == moved
    await ring.level()
    # A restart keeps the moves: they were said of a name that is one node's alone.
    await ring.stop("three")
    await ring.start("three")
    await ring.level()
    assert set(chosen[:16]) <= set(ring.of("three"))
    back = restored(await stores.members(), await words.remembered(stores.redis, stores.keys))
    assert sorted(p.partition for p in back) == sorted(chosen[:16])
    assert {p.about for p in back} == {None}
    outcome = await Mover(stores, nothing, asyncio.Event(), timeout_s=20).place(back)
    assert not outcome.left
    assert (await stores.members()).words.moves == {}
    await ring.level()


async def a_plan_levels_the_load_that_was_measured(ring: Ring) -> None:
    stores = ring.stores
    hot = ring.of("one")[:HOT]
    for partition in hot:
        ring.world.rows.every(1, id=UUID(bytes=uuid4().bytes[:15] + bytes([partition])))
    await ring.world.redis.publish(ring.world.keys.nudge, b"put")

    async def measured() -> bool:
        loads = [p.per_min for p in (await look(stores)).partitions if p.id in hot]
        return all(load is not None and 40 < load < 80 for load in loads)

    await wait_until(measured, 30, "the load of the busy partitions")
    found = await survey(stores)
    found.level(AIM)
    assert found.plan is not None
    assert found.plan.level_before > 2.5, "all of the load is with one of three"
    assert found.plan.level_after < 1.6  # 8 for 3 nodes: 3, 3, 2, were they measured alike on a busy machine
    assert {move.source for move in found.plan.moves} == {ring.id("one")}
    assert {move.partition for move in found.plan.moves} <= set(hot)
    assert found.still_holds(await stores.members())
    outcome = await Mover(stores, nothing, asyncio.Event(), step=3, timeout_s=20, undo=True).place(found.placements)
    assert not outcome.left
    assert not found.still_holds(await stores.members())
    now = ring.owners()
    shares = sorted(sum(now[partition] == ring.id(name) for partition in hot) for name in NAMES)
    assert shares[0] >= 2, shares
    assert shares[-1] <= 4, shares
    one = next(node for node in (await look(stores)).nodes if node.name == "one")
    assert one.late_p50_ms is not None
    assert one.late_p50_ms < 1_000


async def a_step_that_does_not_arrive_is_put_back(ring: Ring) -> None:
    """A node that says it is alive and takes nothing: told to own a partition, it would leave it to nobody."""
    stores = ring.stores
    hung = uuid4()
    chosen = ring.of("one")[:4]
    await words.move(stores.redis, stores.keys, {chosen[0]: "@one"})
    await members.beat(stores.redis, stores.keys, hung, await stores.now_s(), 60, {}, name="hung")
    await words.cordon(stores.redis, stores.keys, [hung.hex], 0)
    unable = [Placement(partition, "@hung", hung.hex) for partition in chosen]
    outcome = await Mover(stores, nothing, asyncio.Event(), timeout_s=1).place(unable)
    assert "is not alive, or is cordoned" in str(outcome.problem)
    assert (await stores.members()).words.moves == {chosen[0]: "@one"}
    # Of weight next to nothing: the ring itself gives it one or two partitions, which nobody takes.
    await words.weigh(stores.redis, stores.keys, hung.hex, 0.001)
    await words.uncordon(stores.redis, stores.keys, [hung.hex])
    outcome = await Mover(stores, nothing, asyncio.Event(), timeout_s=1.5).place(unable)
    assert outcome.done == ()
    assert f"partition {chosen[0]} has not arrived within 1.5 s (4 of 4 have not)" in str(outcome.problem)
    assert "nobody holds its lease" in str(outcome.problem) or "still holds its lease" in str(outcome.problem)
    assert (await stores.members()).words.moves == {chosen[0]: "@one"}, "what was said before"
    await members.leave(stores.redis, stores.keys, hung)
    await ring.level()


async def one_moves_at_a_time(ring: Ring) -> None:
    stores, other = ring.stores, uuid4()
    wanted = [Placement(ring.of("one")[0], "@two", ring.id("two"))]
    assert await words.begin_rebalancing(stores.redis, stores.keys, other, 10)
    with pytest.raises(Conflict, match="one at a time"):
        await Mover(stores, nothing, asyncio.Event()).place(wanted)
    await words.end_rebalancing(stores.redis, stores.keys, uuid4())
    with pytest.raises(Conflict, match="one at a time"):
        await Mover(stores, nothing, asyncio.Event()).place(wanted)
    await words.end_rebalancing(stores.redis, stores.keys, other)
    assert not (await Mover(stores, nothing, asyncio.Event(), timeout_s=20).place(wanted)).left
    await words.move(stores.redis, stores.keys, {wanted[0].partition: None})
    await ring.level()
