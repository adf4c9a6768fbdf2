"""The runner's lease: what is dead stays dead, calls nothing and writes nothing."""

import asyncio

import pytest

from bucketd.runner.loop import Runner
from tests.runner.conftest import World
from tests.runner.doubt import PATIENT, in_doubt
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


async def test_a_runner_announces_itself_and_leaves(world: World) -> None:
    async with world.runner(runner_heartbeat_s=0.1):
        (row,) = world.sql("select * from bucketd.runners")
        assert row["dead_at"] is None
        first = row["heartbeat_at"]
        await wait_until(
            lambda: world.value("select heartbeat_at from bucketd.runners") > first, 5, "the next heartbeat"
        )
    assert world.value("select dead_at is not null from bucketd.runners")


async def test_a_dead_incarnation_is_replaced_and_its_outcomes_are_dropped(
    world: World, target: Target, hook: int
) -> None:
    target.replies.append(Reply(200, delay_s=1.0))
    schedule = world.schedule(hook)
    async with world.runner(runner_heartbeat_s=0.1) as runner:
        world.put([world.fire(schedule, world.now_s - 5)])
        await target.wait_runs(1, 10)
        first = runner.heartbeat.current
        world.sql("update bucketd.runners set dead_at = bucketd.bucketd_now()")
        await wait_until(
            lambda: runner.heartbeat.current is not first and runner.heartbeat.believed(), 10, "a new life"
        )
        await wait_until(lambda: runner.totals["dropped"], 10, "the dropped outcome")
        assert world.statuses() == {"running": 1}  # untouched: the reaper's
        world.put([world.fire(schedule, world.now_s - 4)])
        await world.until({"running": 1, "succeeded": 1})
        await wait_until(lambda: runner.admission.open == 0, 5, "empty accounts")
        await wait_until(lambda: len(runner.book) == 0, 5, "an empty book")
    assert len(world.sql("select 1 from bucketd.runners")) == 2


async def test_a_lease_that_ran_out_is_not_renewed(world: World) -> None:
    """Nobody has marked it dead yet, but others may have counted on it: a new incarnation begins."""
    async with world.runner(runner_heartbeat_s=0.1) as runner:
        first = runner.heartbeat.current
        world.sql("update bucketd.runners set heartbeat_at = heartbeat_at - interval '31 s'")
        await wait_until(
            lambda: runner.heartbeat.current is not first and runner.heartbeat.believed(), 10, "a new life"
        )


async def test_confirm_notices_its_own_death_before_the_heartbeat(world: World, target: Target, hook: int) -> None:
    """No fire is refused because the runner that asks is dead: it is asked about again by the next incarnation."""
    schedule = world.schedule(hook)
    async with world.runner(runner_heartbeat_s=20.0) as runner:
        world.sql("update bucketd.runners set dead_at = bucketd.bucketd_now()")
        world.put([world.fire(schedule, world.now_s - 5)])
        await world.until({"succeeded": 1})
        await world.until_quiet()
        assert not [key for key in runner.totals if key.startswith("refused_")]
    assert len(target.runs) == 1


async def test_without_a_believed_lease_no_call_begins(world: World, target: Target, hook: int) -> None:
    fire = world.fire(world.schedule(hook), world.now_s - 5)
    async with world.runner(**PATIENT) as runner:
        async with in_doubt(world, runner):
            world.put([fire])
            await wait_until(lambda: runner.admission.ready == 1, 10, "a claimed run that waits")
            assert world.statuses() == {"running": 1}
            assert runner.lanes.in_flight == 0
            assert target.requests == []
        await world.until({"succeeded": 1})


async def test_runs_that_cannot_begin_go_back(world: World, target: Target, hook: int) -> None:
    """Claimed and not called within seconds: somebody with room may take it, and no attempt was spent."""
    target.script = lambda request: Reply(hang=True)
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(6))
    async with world.runner(concurrency=2, wake_poll_s=10.0, drain_timeout_s=0.5) as runner:
        await wait_until(lambda: runner.totals["stale"], 15, "the runs that waited")
        await wait_until(lambda: world.statuses().get("deferred"), 5, "their return")
        assert {run["attempt"] for run in world.runs(status="deferred")} == {0}
        assert len(target.requests) == 2


async def test_a_bug_ends_the_runner_at_once(
    world: World, target: Target, hook: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that breaks takes the process with it, whatever else is in the middle of something: nothing may hang on."""
    batch = world.target(target.url, batch_max=5, batch_linger_ms=20)
    at = world.now_s - 5
    for _ in range(4):
        world.put(world.fire(world.schedule(hook), at) for _ in range(50))
        world.put(world.fire(world.schedule(batch), at) for _ in range(50))
    runner = Runner(world.settings)
    task = asyncio.create_task(runner.run())
    await asyncio.wait_for(runner.started.wait(), 10)

    async def broken() -> None:
        raise ZeroDivisionError

    await target.wait_runs(20, 10)
    monkeypatch.setattr(runner.results, "run_once", broken)
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done, "the runner goes on, half dead"
    with pytest.raises(ExceptionGroup):
        task.result()
