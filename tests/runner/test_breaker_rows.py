"""The row of a breaker: which held runs try the target, who stops them, and what two hands that reach for it at once do."""

from typing import Any
from uuid import UUID, uuid4

from bucketd.store import breakers, runners, wake
from bucketd.store.breakers import HalfOpen
from bucketd.store.connect import make_pool
from bucketd.store.operation import Operation, T, drive
from tests.runner.conftest import World


def do(world: World, operation: Operation[T]) -> T:
    with world.db.transaction():
        return drive(operation, world.db)


def open_and_due(world: World, target_id: int) -> None:
    assert do(world, breakers.open_(target_id, "test", openings=1, pause_s=-1.0))


def let_through(world: World, target_id: int, probes: int = 3) -> HalfOpen | None:
    return do(world, breakers.half_open(target_id, probes=probes, pause_s=30.0))


def go(world: World, target_id: int, probes: int = 3) -> int:
    """How many are let through by a breaker that is due."""
    found = let_through(world, target_id, probes)
    assert found
    return found.probes


def probing(world: World) -> list[tuple[UUID, int]]:
    """(schedule, seconds ago) of the runs that were let through, newest first."""
    rows = world.sql(
        "select schedule_id, round(extract(epoch from bucketd.bucketd_now() - scheduled_at))::int as age from bucketd.runs"
        " where reason = 'probe' and status = 'deferred' and wake_at <= bucketd.bucketd_now() order by scheduled_at desc, schedule_id"
    )
    return [(row["schedule_id"], row["age"] // 10 * 10) for row in rows]


def held(world: World, schedule: UUID, age_s: int, **columns: Any) -> None:
    world.run(schedule, world.now_s - age_s, "held", **{"wake_at": "infinity", **columns})


# Policy of the schedule, held rows by their age in seconds, and the age of those that go.
CHOICES: list[tuple[dict[str, Any], dict[int, dict[str, Any]], list[int]]] = [
    ({"misfire": "run_once"}, {600: {}, 700: {}}, [600]),  # the one that a release would start
    ({"misfire": "catch_up"}, {600: {}, 700: {}}, [700]),  # the oldest goes first
    ({"misfire": "skip"}, {600: {}, 700: {}}, []),
    ({"misfire": "skip"}, {20: {}, 700: {}}, [20]),
    ({"misfire": "catch_up", "deadline_s": 300}, {600: {}}, []),
    ({"misfire": "run_once"}, {600: {}, 700: {"attempt": 1}}, [700]),  # others of a schedule wait for what was started
    ({"misfire": "skip"}, {600: {"origin": "trigger"}, 500: {}}, [600]),
    ({}, {20: {"attempt": 5}}, []),  # no attempt left
    ({"max_attempts": 6}, {20: {"attempt": 5}}, [20]),
    ({}, {20: {"reason": "replayed"}}, []),  # the reason buys it an attempt, and would be lost
]


def test_only_what_a_release_would_start_tries_the_target(world: World) -> None:
    for policy, rows, goes in CHOICES:
        target = world.target("http://h/")
        schedule = world.schedule(target, **policy)
        for age_s, columns in rows.items():
            held(world, schedule, age_s, **columns)
        open_and_due(world, target)
        found = let_through(world, target)
        assert found, (policy, rows)
        assert (found.probes, found.due_s >= 1) == (len(goes), True), (policy, rows)
        assert [age_s for id_, age_s in probing(world) if id_ == schedule] == goes, (policy, rows)
        assert let_through(world, target) is None or not goes, "the next ones go when these have had their time"


def test_a_few_go_live_ones_with_the_fewest_attempts_first_and_none_of_another_target(world: World, hook: int) -> None:
    tried, fresh, late_work = world.schedule(hook), world.schedule(hook), world.schedule(hook)
    held(world, tried, 10, attempt=2)
    held(world, fresh, 30)
    held(world, late_work, 20, background=True, origin="backfill")
    held(world, world.schedule(world.target("http://h/")), 10)
    moved = world.schedule(hook)
    held(world, moved, 10)
    world.sql("update bucketd.schedules set target_id = %s where id = %s", world.target("http://h/"), moved)
    open_and_due(world, hook)
    assert go(world, hook, probes=2) == 2
    assert probing(world) == [(tried, 10), (fresh, 30)]
    world.sql("update bucketd.holds set probe_at = bucketd.bucketd_now()")
    assert go(world, hook, probes=5) == 1


async def test_a_hold_of_a_user_stands_beside_it(world: World, hook: int) -> None:
    schedule = world.schedule(hook, tenant="acme")
    held(world, schedule, 10)
    for scope, tenant, target_id in (("all", None, None), ("tenant", "acme", None), ("target", None, hook)):
        open_and_due(world, hook)
        world.sql("insert into bucketd.holds (scope, tenant, target_id) values (%s, %s, %s)", scope, tenant, target_id)
        assert go(world, hook) == 0, scope
        world.sql("update bucketd.runs set status = 'deferred', wake_at = bucketd.bucketd_now(), reason = 'probe'")
        assert [row.status for row in await take(world)] == ["held"], f"let through before the user held it: {scope}"
        assert world.sql("select reason, attempt from bucketd.runs") == [{"reason": None, "attempt": 0}]
        assert do(world, breakers.close(hook)) is not None
        assert world.value("select count(*) from bucketd.holds") == 1, "a breaker's end is none of the user's hold"
        world.sql("delete from bucketd.holds")


async def take(world: World) -> list[wake.Woken]:
    """What a wake statement takes."""
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        runner_id = uuid4()
        await runners.join(connection, runner_id, host="test", pid=1)
        return await wake.take(connection, runner_id, 9, room=wake.Room(100, 100, {}, {}), dead_after_s=30.0)


async def test_a_probe_passes_its_breaker_once(world: World, hook: int) -> None:
    probe, other = world.schedule(hook), world.schedule(hook)
    held(world, probe, 10)
    open_and_due(world, hook)
    assert let_through(world, hook)
    world.run(other, world.now_s - 10)
    assert {row.schedule_id: (row.status, row.probe) for row in await take(world)} == {
        probe: ("running", True),
        other: ("held", False),
    }
    world.sql(
        "update bucketd.runs set status = 'retrying', claim = null, wake_at = now() where schedule_id = %s", probe
    )
    assert [row.status for row in await take(world)] == ["held"], "it failed, and waits like all others"


def test_one_row_whoever_opens_it_and_failed_probes_of_a_round_count_once(world: World, hook: int) -> None:
    assert do(world, breakers.open_(hook, "first", openings=1, pause_s=30.0))
    assert not do(world, breakers.open_(hook, "second", openings=1, pause_s=60.0))
    assert not do(world, breakers.open_(999, "gone", openings=1, pause_s=60.0))
    assert do(world, breakers.reopen(hook, openings=1, pause_s=60.0)) == "target-1"
    assert do(world, breakers.reopen(hook, openings=1, pause_s=60.0)) is None
    assert do(world, breakers.standing()) == [(hook, 2, False)]
    closed = do(world, breakers.close(hook))
    assert closed
    assert (closed.target, closed.openings) == ("target-1", 2)
    assert do(world, breakers.close(hook)) is None
