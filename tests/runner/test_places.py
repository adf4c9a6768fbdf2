"""Rows that wait for a place: which are taken, in which order, and which keys have some."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from bucketd.store import confirm, expand, runners, wake
from bucketd.store.confirm import Busy, Verdict
from bucketd.store.connect import make_pool
from bucketd.store.fires import ASKED
from bucketd.store.wake import Room, Woken
from tests.runner.conftest import World

FAR = "2100-01-01"


def busy(world: World, schedule: Any, at: float, key: str = "target", **columns: Any) -> None:
    """A row that waits for a place."""
    world.run(schedule, at, **{"wake_at": FAR, "reason": f"{key}_busy"} | columns)


async def take(
    world: World, *, room: int = 100, targets: Mapping[int, int] | None = None, tenants: Mapping[str, int] | None = None
) -> list[Woken]:
    """What one statement takes, with these places."""
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        runner_id = uuid4()
        await runners.join(connection, runner_id, host="test", pid=1)
        places = Room(room, room, targets or {}, tenants or {})
        return await wake.take(connection, runner_id, runner_id.int % 2**62, room=places, dead_after_s=30.0)


async def test_as_many_as_there_are_places_the_oldest_first_live_before_background(world: World, hook: int) -> None:
    schedule = world.schedule(hook, overlap="allow")
    at = world.now_s
    for n in range(6):
        busy(world, schedule, at - n)
    busy(world, schedule, at - 50, background=True, origin="backfill")
    other = world.schedule(world.target("http://h/"))
    busy(world, other, at - 99)
    assert await take(world) == []
    taken = await take(world, targets={hook: 5})
    assert sorted(at - row.scheduled_at.timestamp() for row in taken) == [1, 2, 3, 4, 5]
    assert {(row.status, row.attempt, row.queue) for row in taken} == {("running", 1, "target")}
    rest = await take(world, targets={hook: 5})
    assert sorted(at - row.scheduled_at.timestamp() for row in rest) == [0, 50]
    assert [row.background for row in rest].count(True) == 1


async def test_rows_of_a_tenant_are_taken_by_its_places_whatever_their_target(world: World, hook: int) -> None:
    at = world.now_s
    for n in range(4):
        busy(world, world.schedule(world.target("http://h/"), tenant="acme"), at - n, "tenant")
    busy(world, world.schedule(hook, tenant="initech"), at, "tenant")
    taken = await take(world, tenants={"acme": 3})
    assert {(row.tenant, row.queue) for row in taken} == {("acme", "tenant")}
    assert len(taken) == 3


async def test_what_is_due_gets_the_room_that_is_left(world: World, hook: int) -> None:
    schedule = world.schedule(hook, overlap="allow")
    at = world.now_s
    for n in range(5):
        busy(world, schedule, at - n)
        world.run(schedule, at - 100 - n)
    taken = await take(world, room=6, targets={hook: 4})
    assert sorted(row.queue or "due" for row in taken) == ["due"] * 2 + ["target"] * 4


async def test_a_row_that_everybody_overlooked_is_taken_when_due_and_once(world: World, hook: int) -> None:
    busy(world, world.schedule(hook), world.now_s, wake_at="2026-01-01")
    (row,) = await take(world, targets={hook: 5})
    assert (row.status, row.queue) == ("running", None)


async def test_waiting_for_a_place_spends_no_attempt_that_was_bought(world: World) -> None:
    target_id = world.target("http://h/", max_attempts=1)
    busy(world, world.schedule(target_id), world.now_s, attempt=1)
    (row,) = await take(world, targets={target_id: 1})
    assert (row.status, row.attempt) == ("running", 2)
    assert world.runs()[0]["reason"] is None


async def test_the_keys_that_have_rows_are_found_in_order_and_bounded(world: World) -> None:
    targets = [world.target("http://h/") for _ in range(4)]
    at = world.now_s
    for target_id in targets:
        for n in range(3):
            busy(world, world.schedule(target_id, tenant=f"tenant-{target_id}"), at - n)
    busy(world, world.schedule(targets[0], tenant="zeta"), at - 9, "tenant")
    busy(world, world.schedule(targets[0], tenant="alpha"), at - 9, "tenant")
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        assert await wake.busy_targets(connection, after=0, most=10) == dict.fromkeys(targets, 1)
        assert list(await wake.busy_targets(connection, after=targets[0], most=2)) == targets[1:3]
        assert await wake.busy_tenants(connection, after="", most=10) == ["alpha", "zeta"]
        assert await wake.busy_tenants(connection, after="alpha", most=10) == ["zeta"]


async def test_expansion_waits_for_background_rows_that_wait_for_a_place(world: World, hook: int) -> None:
    schedule = world.schedule(hook)
    for n in range(5):
        busy(world, schedule, world.now_s - n, background=True, origin="backfill")
    async with make_pool(world.settings, application="test", size=1) as pool, pool.connection() as connection:
        assert await expand.waiting(connection, 10) == 5


@pytest.mark.parametrize(
    ("waiting", "reasons"),
    [
        (Busy(), [None, None, None, None]),
        (Busy(targets=[1]), ["target_busy", None, "target_busy", None]),
        (Busy(tenants=["crowd"]), ["tenant_busy", "tenant_busy", None, None]),
        (Busy(tenants=["crowd"], spared=[2]), ["tenant_busy", None, None, None]),
        (Busy(targets=[2], tenants=["crowd"]), ["tenant_busy", "target_busy", None, "target_busy"]),
    ],
)
async def test_a_fire_of_a_key_for_which_rows_wait_joins_them_at_once(
    waiting: Busy, reasons: list[str | None], world: World
) -> None:
    """Its row is made without being claimed, asks for no slot, and says where it waits."""
    targets = [world.target("http://h/"), world.target("http://h/")]
    assert targets == [1, 2]
    pairs = [(tenant, target) for tenant in ("crowd", "calm") for target in targets]
    schedules = [world.schedule(target, tenant=tenant, overlap="skip") for tenant, target in pairs]
    fires = [world.fire(schedule, world.now_s - 5) for schedule in schedules]
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        runner_id = uuid4()
        await runners.join(connection, runner_id, host="test", pid=1)
        arrays = confirm.columns([ASKED.unpack(fire) for fire in fires])
        lines = await confirm.confirm(connection, runner_id, 7, arrays, dead_after_s=30.0, again=False, busy=waiting)
    said = {line.n: (line.verdict, line.is_new) for line in map(confirm.Seen._make, lines)}
    rows = {row["schedule_id"]: row for row in world.runs()}
    for n, (schedule, reason) in enumerate(zip(schedules, reasons, strict=True), 1):
        row = rows[schedule]
        assert row["reason"] == reason
        assert said[n] == ((Verdict.RUN, True) if reason is None else (Verdict.BUSY, False))
        state = ("running", 1, 7) if reason is None else ("deferred", 0, None)
        assert (row["status"], row["attempt"], row["claim"]) == state
        assert (row["wake_at"] is not None) == (reason is not None)
    assert len(world.sql("select 1 from bucketd.slots")) == reasons.count(None)
