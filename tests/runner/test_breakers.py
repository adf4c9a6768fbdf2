"""A target that fails is left alone, its runs are kept without an attempt, some of them try it, and all go on when it answers."""

from dataclasses import replace
from typing import Any

from bucketd.runner.breaker import Rules
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target
from tests.support.waiting import wait_until

# Pauses never end by themselves here: a test says when it is time for probes.
PATIENT = Rules(pause_s=600, doubt_s=0.05, poll_s=0.05)


def breaker(world: World) -> dict[str, Any] | None:
    """The row of the open breaker."""
    rows = world.sql("select *, probe_at - bucketd.bucketd_now() as pause from bucketd.holds where kind = 'breaker'")
    return rows[0] if rows else None


def probe_now(world: World) -> None:
    world.sql("update bucketd.holds set probe_at = bucketd.bucketd_now() where kind = 'breaker'")


async def opened(world: World, openings: int = 1) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        row = breaker(world)
        return row if row and row["openings"] == openings else None

    row = await wait_until(found, 10, f"a breaker with {openings} openings; have {breaker(world)}")
    assert isinstance(row, dict)
    return row


def attempts(world: World, target_id: int) -> list[int]:
    """Of each run of the target."""
    return [row["attempt"] for row in world.sql("select attempt from bucketd.runs where target_id = %s", target_id)]


def held(world: World, target_id: int) -> int:
    return int(world.value("select count(*) from bucketd.runs where status = 'held' and target_id = %s", target_id))


async def test_it_opens_probes_and_closes_and_nothing_is_lost_or_spent(world: World, target: Target) -> None:
    """Two runners share a failing target and a good one; what one of them sees holds for both."""
    failing = True
    target.script = lambda request: Reply(status=503 if failing and request.path == "/bad" else 200)
    url = target.url.removesuffix("/hook")
    bad, good = world.target(f"{url}/bad", name="bad", max_attempts=50), world.target(f"{url}/good")
    at = world.now_s - 20
    late = {policy: world.schedule(bad, misfire=policy) for policy in ("run_once", "skip", "catch_up")}
    ordinary = [world.schedule(bad) for _ in range(60)]
    fine = [world.schedule(good) for _ in range(10)]

    def at_bad() -> list[Request]:
        return [request for request in target.requests if request.path == "/bad"]

    async with (
        world.runner(breaker_rules=PATIENT, concurrency=4),
        world.runner(breaker_rules=PATIENT, concurrency=4),
    ):
        world.put([world.fire(schedule, at) for schedule in ordinary])
        row = await opened(world)
        assert (row["scope"], row["target_id"], row["tenant"]) == ("target", bad, None)
        assert row["reason"].endswith("calls within 10 s failed")
        assert 440 < row["pause"].total_seconds() <= 600
        await wait_until(lambda: held(world, bad) == 60, 10, f"all of them held; have {world.statuses()}")
        asked = len(at_bad())
        assert sum(attempts(world, bad)) == asked, "an attempt is a call, and no more"

        for schedule in late.values():  # as settling writes what falls due meanwhile
            for before_s in (660, 600):
                world.run(schedule, at - before_s, "held", wake_at="infinity")
        world.put([world.fire(ordinary[0], at + 10)])
        world.put([world.fire(schedule, at) for schedule in fine])
        await wait_until(lambda: len(target.requests) - len(at_bad()) == 10, 10, "the good target's runs")
        await world.until_quiet()
        assert len(at_bad()) == asked, "not called while open"
        assert len(attempts(world, bad)) == 66, "not confirmed while open"

        probe_now(world)
        row = await opened(world, openings=2)  # of three probes that fail the first counts
        assert 440 < row["pause"].total_seconds() <= 600, "the longest"
        await wait_until(lambda: held(world, bad) == 66, 10, f"the probes held again; have {world.statuses()}")
        assert len(at_bad()) == asked + 3

        failing = False
        probe_now(world)
        await wait_until(lambda: breaker(world) is None, 10, "the breaker to close")
        await world.until({"succeeded": 60 + 10 + 1 + 2, "skipped": 1 + 2})
    assert sum(attempts(world, bad)) == len(at_bad())
    verdicts = {policy: [run["status"] for run in world.runs(schedule_id=id_)] for policy, id_ in late.items()}
    assert verdicts == {
        "run_once": ["skipped", "succeeded"],
        "skip": ["skipped", "skipped"],
        "catch_up": ["succeeded", "succeeded"],
    }
    told = world.sql("select action, name, changes from bucketd.audit where actor = 'breaker' order by audit_id")
    assert [(one["action"], one["name"]) for one in told] == [("create", "bad"), ("edit", "bad"), ("delete", "bad")]
    assert told[1]["changes"] == {"openings": [1, 2]}


async def test_what_was_claimed_and_not_called_is_given_back(world: World, target: Target) -> None:
    """When another runner opens it; in the lane of single calls, where some hang, and in that of a batch, which lingers."""
    target.script = lambda request: Reply(hang=True)
    single, batch = world.target(target.url), world.target(target.url, batch_max=50, batch_linger_ms=10_000)
    at = world.now_s - 20
    for schedule in (world.schedule(single), world.schedule(batch)):
        for number in range(12):
            world.run(schedule, at - number)

    def running() -> int:
        return world.statuses().get("running", 0)

    async with world.runner(breaker_rules=PATIENT, concurrency=8, drain_timeout_s=0.1) as runner:
        await wait_until(lambda: runner.admission.ready and running() > 12, 3, "runs that wait for their call")
        called = len(target.requests)
        world.sql(
            "insert into bucketd.holds (kind, scope, target_id, probe_at)"
            " select 'breaker', 'target', target_id, 'infinity' from bucketd.targets"
        )
        await wait_until(lambda: running() == target.in_flight, 3, "only what hangs to be running")  # before STALE_S
        assert len(target.requests) == called
        assert sorted(attempts(world, single)) == [0] * (12 - called) + [1] * called
        assert attempts(world, batch) == [0] * 12


async def test_silence_opens_it_and_after_an_idle_closing_the_first_failure_does(world: World, target: Target) -> None:
    target.script = lambda request: Reply(reset=True)
    hook = world.target(target.url, max_attempts=1)
    at = world.now_s - 20
    schedules = [world.schedule(hook) for _ in range(6)]
    async with world.runner(breaker_rules=Rules(pause_s=600, doubt_s=0.05, poll_s=0.05, idle_s=0.2, look_s=0.05)):
        world.put([world.fire(schedule, at) for schedule in schedules[:4]])
        await world.until({"dead": 4})
        assert breaker(world) is None
        world.put([world.fire(schedules[4], at)])
        assert (await opened(world))["reason"] == "5 calls in a row without an answer"
        probe_now(world)
        await wait_until(lambda: breaker(world) is None, 10, "it to close: nothing is held")
        world.put([world.fire(schedules[5], at)])
        row = await opened(world, openings=2)
        assert row["reason"] == "it failed again when its breaker had closed"


async def test_a_batch_is_one_call(world: World, target: Target) -> None:
    target.script = lambda request: Reply(status=500)
    batch = world.target(target.url, batch_max=50, batch_linger_ms=20, max_attempts=1)
    at = world.now_s - 20
    schedules = [world.schedule(batch) for _ in range(60)]
    async with world.runner(breaker_rules=replace(PATIENT, least_calls=5)):
        world.put([world.fire(schedule, at) for schedule in schedules])
        await world.until({"dead": 60})
        for number in range(len(target.requests), 5):
            assert breaker(world) is None
            world.run(schedules[0], at - 60 - number)
            await world.until({"dead": 61 + number - 2})
        await opened(world)
    assert len(target.requests) == 5
