"""Rows that wait: each verdict of the wake statement, and who goes first."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from bucketd.store import runners, wake
from bucketd.store.connect import make_pool
from tests.runner.conftest import World
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until

FAILED_ONCE = '[{"attempt": 1, "status": 500, "error": "x", "at": "2026-01-01T00:00:00Z"}]'


async def take(world: World, *, room: int = 100, claim: int = 9, alive: bool = True) -> list[wake.Woken]:
    """What one statement takes."""
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        runner_id = uuid4()
        await runners.join(connection, runner_id, host="test", pid=1)
        if not alive:
            await runners.leave(connection, runner_id)
        return await wake.take(connection, runner_id, claim, room=wake.Room(room, room, {}, {}), dead_after_s=30.0)


@pytest.mark.parametrize(
    ("status", "columns"),
    [
        ("deferred", {}),
        ("deferred", {"background": True, "origin": "backfill"}),
        ("retrying", {"attempt": 1, "failures": FAILED_ONCE}),
        ("waiting", {}),
    ],
)
async def test_a_due_row_gets_its_next_attempt(status: str, columns: dict[str, Any], world: World, hook: int) -> None:
    schedule = world.schedule(hook, payload='{"p":  1}', timeout_s=9)
    world.run(schedule, world.now_s - 30, status, **columns)
    (woken,) = await take(world)
    attempt = columns.get("attempt", 0) + 1
    assert (woken.status, woken.attempt, woken.payload, woken.timeout_s) == ("running", attempt, '{"p":  1}', 9)
    (run,) = world.runs()
    assert (run["status"], run["attempt"], run["claim"], run["wake_at"]) == ("running", attempt, 9, None)
    assert run["started_at"] is not None
    (claim,) = world.sql("select * from bucketd.claims")
    assert (claim["claim"], claim["instants"]) == (9, [run["scheduled_at"]])


async def test_what_is_not_due_stays(world: World, hook: int) -> None:
    schedule = world.schedule(hook)
    at = world.now_s
    world.run(schedule, at - 30, wake_at="2100-01-01")
    world.run(schedule, at - 31, "held", wake_at="infinity")
    world.run(schedule, at - 32, "succeeded", wake_at=None, finished_at="2026-01-01")
    assert await take(world) == []
    assert world.sql("select 1 from bucketd.claims") == []


async def test_a_dead_runner_wakes_nothing(world: World, hook: int) -> None:
    world.run(world.schedule(hook), world.now_s - 30)
    assert await take(world, alive=False) == []
    assert world.statuses() == {"deferred": 1}


@pytest.mark.parametrize("scope", ["all", "tenant", "target"])
async def test_rows_on_hold_are_parked(scope: str, world: World, hook: int) -> None:
    held, free = world.schedule(hook, tenant="acme"), world.schedule(world.target("http://h/"), tenant="initech")
    for schedule in (held, free):
        world.run(schedule, world.now_s - 30)
    tenant, target_id = ("acme" if scope == "tenant" else None), (hook if scope == "target" else None)
    world.sql("insert into bucketd.holds (scope, tenant, target_id) values (%s, %s, %s)", scope, tenant, target_id)
    assert {row.schedule_id: row.status for row in await take(world)} == {
        held: "held",
        free: "held" if scope == "all" else "running",
    }
    (parked,) = world.sql(
        "select status, claim, attempt, wake_at::text as wake_at from bucketd.runs where schedule_id = %s", held
    )
    assert parked == {"status": "held", "claim": None, "attempt": 0, "wake_at": "infinity"}


async def test_a_row_without_schedule_is_cancelled(world: World) -> None:
    world.run(uuid4(), world.now_s - 30)
    (woken,) = await take(world)
    assert woken.status == "cancelled"
    (run,) = world.runs()
    assert (run["status"], run["reason"], run["wake_at"]) == ("cancelled", "deleted", None)
    assert run["finished_at"] is not None
    assert world.sql("select 1 from bucketd.claims") == []


@pytest.mark.parametrize(
    ("columns", "reason"),
    [({"failures": FAILED_ONCE}, "attempts"), ({}, "runner_lost"), ({"failures": "[]"}, "runner_lost")],
)
async def test_no_attempt_left_is_dead(columns: dict[str, Any], reason: str, world: World) -> None:
    schedule = world.schedule(world.target("http://h/", max_attempts=1), payload='{"k": 1}', name="doomed")
    world.run(schedule, world.now_s - 30, "retrying", attempt=1, **columns)
    (woken,) = await take(world)
    assert woken.status == "dead"
    (run,) = world.runs()
    assert (run["status"], run["reason"], run["attempt"], run["claim"]) == ("dead", reason, 1, None)
    (letter,) = world.sql("select * from bucketd.dead_letters")
    assert (letter["name"], letter["payload"], letter["reason"], letter["attempts"]) == ("doomed", {"k": 1}, reason, 1)


async def test_a_replay_buys_one_attempt(world: World) -> None:
    schedule = world.schedule(world.target("http://h/", max_attempts=1))
    world.run(schedule, world.now_s - 30, "deferred", attempt=1, reason="replayed", failures=FAILED_ONCE)
    (woken,) = await take(world)
    assert (woken.status, woken.attempt) == ("running", 2)
    world.sql("update bucketd.runs set claim = null, status = 'retrying', wake_at = bucketd.bucketd_now()")
    (woken,) = await take(world, claim=10)
    assert woken.status == "dead"


async def test_live_work_goes_first_and_background_gets_half_of_the_rest(world: World, hook: int) -> None:
    schedule = world.schedule(hook)
    at = world.now_s
    for n in range(4):
        world.run(schedule, at - 100 - n)
    for n in range(20):
        world.run(schedule, at - 200 - n, background=True, origin="backfill", wake_at="2026-01-01")
    woken = await take(world, room=10)
    live = [row for row in woken if row.scheduled_at.timestamp() > at - 150]
    assert (len(live), len(woken)) == (4, 7)
    assert len(await take(world, room=3, claim=10)) == 2  # (3 - 0 + 1) / 2


async def test_a_locked_row_is_passed_over(world: World, hook: int) -> None:
    schedule = world.schedule(hook)
    at = world.now_s
    world.run(schedule, at - 30)
    world.run(schedule, at - 31)
    with world.db.transaction():
        world.sql("select 1 from bucketd.runs where scheduled_at = to_timestamp(%s) for update", at - 30)
        (woken,) = await take(world)
    assert woken.scheduled_at.timestamp() == at - 31


async def test_two_runners_never_take_the_same_row(world: World, hook: int) -> None:
    schedule = world.schedule(hook)
    at = world.now_s
    for n in range(50):
        world.run(schedule, at - n)
    async with world.runner(), world.runner():
        await world.until({"succeeded": 50})
    assert [run["attempt"] for run in world.runs()] == [1] * 50


async def test_a_nudge_wakes_at_once(world: World, target: Target, hook: int) -> None:
    async with world.runner(wake_poll_s=10.0):
        await wait_until(
            lambda: dict(world.redis.pubsub_numsub(world.keys.wake))[world.keys.wake.encode()], 5, "the subscription"
        )
        world.run(world.schedule(hook), world.now_s - 30)
        world.redis.publish(world.keys.wake, "")
        await target.wait_runs(1, 3)


async def test_a_trigger_keeps_its_microseconds(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    world.run(schedule, world.now_s - 30 + 0.25, origin="trigger")
    async with world.runner():
        await world.until({"succeeded": 1})
    (body,) = target.runs
    assert body["scheduled_at"].endswith(".250000Z")
    assert "_250000Z-" in body["run_id"]
    assert (body["previous_at"], body["next_at"]) == (None, None)


async def test_a_woken_run_goes_to_the_schedules_target_of_now(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    world.run(schedule, world.now_s - 30)
    moved = world.target(target.url + "/moved")
    world.sql("update bucketd.schedules set target_id = %s", moved)
    async with world.runner():
        await world.until({"succeeded": 1})
    assert [request.path for request in target.requests] == ["/hook/moved"]
    assert world.runs()[0]["target_id"] == moved


async def test_more_rows_than_room_all_go(world: World, target: Target, hook: int) -> None:
    target.script = lambda request: Reply(delay_s=0.01)
    schedule: UUID = world.schedule(hook)
    at = world.now_s
    for n in range(120):
        world.run(schedule, at - n, background=n % 2 == 0)
    async with world.runner(concurrency=8) as runner:
        await world.until({"succeeded": 120}, 20)
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == 0, 5, "empty accounts")
    assert len(target.runs) == 120
