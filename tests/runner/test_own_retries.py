"""Schedules that say themselves how their runs are retried, beside others of the same target."""

from typing import Any

from bucketd.store import results
from bucketd.store.connect import make_pool
from tests.runner.conftest import World
from tests.runner.test_wake import FAILED_ONCE, take
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


async def test_each_run_gets_the_attempts_that_its_schedule_says(world: World, target: Target) -> None:
    """All in one batch of failures: who says nothing has the target's."""
    hook = world.target(target.url, max_attempts=3)
    target.script = lambda request: Reply(500)
    said: dict[str, int | None] = {"fewer": 1, "more": 5, "nothing": None, "delays": None}
    schedules = {name: world.schedule(hook, name=name, max_attempts=most) for name, most in said.items()}
    world.sql("update bucketd.schedules set retry_base_s = 0, retry_cap_s = 1 where name = 'delays'")
    world.put(world.fire(schedule, world.now_s - 5) for schedule in schedules.values())
    async with world.runner():
        await world.until({"dead": 4})
        await world.until_quiet()
    letters = world.sql(
        "select name, attempts, reason, jsonb_array_length(failures) as failures from bucketd.dead_letters"
    )
    made = {"fewer": 1, "more": 5, "nothing": 3, "delays": 3}
    assert {row["name"]: (row["attempts"], row["reason"], row["failures"]) for row in letters} == {
        name: (attempts, "attempts", attempts) for name, attempts in made.items()
    }
    for name, attempts in made.items():
        assert [body["attempt"] for body in target.runs if body["schedule"] == name] == list(range(1, attempts + 1))


async def test_delays_come_from_the_schedules_own_base_and_cap(world: World, target: Target) -> None:
    """Each for itself: one that names its cap keeps the target's base, and the other way round. After the fourth attempt a base
    has grown to eight times of what it was, so that the two cannot be taken for each other."""
    target.script = lambda request: Reply(500)
    kinds: dict[str, tuple[dict[str, float], dict[str, float], float]] = {
        "both": ({"retry_base_s": 0, "retry_cap_s": 0}, {"retry_base_s": 9_000, "retry_cap_s": 800}, 800),
        "cap": ({"retry_base_s": 9_000, "retry_cap_s": 3_600}, {"retry_cap_s": 40}, 40),
        "base": ({"retry_base_s": 9_000, "retry_cap_s": 3_600}, {"retry_base_s": 20}, 160),
    }
    for kind, (targets, own, _) in kinds.items():
        hook = world.target(target.url, **targets)
        for _ in range(12):
            world.run(world.schedule(hook, tenant=kind, **own), world.now_s - 5, "retrying", attempt=3)
    async with world.runner():
        await wait_until(lambda: len(target.runs) == 36, 10, "36 calls")
        await world.until({"retrying": 36})
    drawn = "extract(epoch from wake_at - (failures -> 0 ->> 'at')::timestamptz)::float8"
    for kind, (_, _, longest_s) in kinds.items():
        delays = [row["d"] for row in world.sql(f"select {drawn} as d from bucketd.runs where tenant = %s", kind)]
        assert len(delays) == 12
        assert all(0 <= delay <= longest_s for delay in delays), kind
        assert max(delays) > longest_s / 8, f"{kind}: one in 7e10 has twelve draws in the first eighth"


async def test_lost_runners_count_against_the_schedules_own_attempts(world: World) -> None:
    """What a runner took and never reported; the target would have allowed more, or less."""
    strict, lenient = world.target("http://h/", max_attempts=1), world.target("http://h/", max_attempts=9)
    few = world.schedule(lenient, max_attempts=2, name="few", payload='{"k": 1}')
    many = world.schedule(strict, max_attempts=4)
    none = world.schedule(strict)
    for schedule, attempt in ((few, 2), (many, 3), (none, 1)):
        columns: dict[str, Any] = {"failures": FAILED_ONCE} if attempt > 1 else {}
        world.run(schedule, world.now_s - 30, "retrying", attempt=attempt, **columns)
    woken = {row.schedule_id: (row.status, row.attempt) for row in await take(world)}
    assert woken == {few: ("dead", 2), many: ("running", 4), none: ("dead", 1)}
    (letter,) = world.sql("select * from bucketd.dead_letters where name = 'few'")
    assert (letter["reason"], letter["attempts"], letter["payload"]) == ("runner_lost", 2, {"k": 1})


async def test_only_schedules_that_say_something_are_answered(world: World, hook: int) -> None:
    said: list[dict[str, Any]] = [{"max_attempts": 1}, {"retry_base_s": 0.25}, {"retry_cap_s": 0}, {}]
    ids = [world.schedule(hook, **own).bytes for own in said]
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        found = await results.own_retries(connection, [*ids, ids[0], bytes(16)])
    assert found == {ids[0]: (1, None, None), ids[1]: (None, 0.25, None), ids[2]: (None, None, 0.0)}


async def test_spent_claims_go_without_any_failure(world: World) -> None:
    """All outcomes of a batch were of an incarnation that has ended, and an older claim is left over."""
    runner = world.value(
        "insert into bucketd.runners values (gen_random_uuid(), 'h', 1, 1, now(), now(), null) returning runner_id"
    )
    world.sql("insert into bucketd.claims values (1, %s, '{}', now()), (2, %s, '{}', now())", runner, runner)
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        assert await results.write_failed(connection, results.Keys([], [], [], []), [], [1]) == 0
    assert [row["claim"] for row in world.sql("select claim from bucketd.claims")] == [2]
