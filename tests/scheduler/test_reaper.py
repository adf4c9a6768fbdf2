"""What a dead runner held wakes again; what a live one holds is left alone."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from bucketd.scheduler import reaper as module
from bucketd.store import holds, reap
from tests.scheduler.world import World


def runner(world: World, *, silent_s: float = 0) -> UUID:
    """A runner whose last heartbeat is so long ago."""
    id = uuid4()
    world.rows.sql(
        "insert into bucketd.runners (runner_id, host, pid, message_version, started_at, heartbeat_at)"
        " select %s, 'h', 1, 1, t, t from (select bucketd.bucketd_now() - make_interval(secs => %s::float8) as t) x",
        id, silent_s,
    )  # fmt: skip
    return id


def claimed(world: World, by: UUID | None, claim: int, count: int = 3, attempt: int = 2) -> list[int]:
    """Runs that a runner holds, a second apart."""
    ats = list(range(world.minute - count, world.minute))
    for at in ats:
        world.rows.sql(
            "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, claim, attempt, started_at)"
            " values (to_timestamp(%s), gen_random_uuid(), 1, 'running', 'fire', 'default', %s, %s, to_timestamp(%s))",
            at, claim, attempt, at,
        )  # fmt: skip
    if by is not None:
        world.rows.sql(
            "insert into bucketd.claims (claim, runner_id, instants, created_at)"
            " select %s, %s, array_agg(to_timestamp(a)), now() from unnest(%s::bigint[]) a",
            claim, by, ats,
        )  # fmt: skip
    return ats


def runs(world: World) -> list[tuple[Any, ...]]:
    """(status, claim, attempt, whether it wakes now, reason), counted."""
    return world.rows.sql(
        "select status::text, claim, attempt, wake_at <= bucketd.bucketd_now(), reason, count(*)"
        " from bucketd.runs group by 1, 2, 3, 4, 5 order by claim nulls first"
    )


async def test_a_dead_runners_runs_wake_and_no_attempt_is_counted(world: World) -> None:
    dead, alive = runner(world, silent_s=31), runner(world, silent_s=29)
    claimed(world, dead, 11)
    claimed(world, alive, 12)
    scheduler = await world.scheduler()
    report = await scheduler.reaper.run_once()
    assert (report.buried, report.claims, report.runs) == (1, 1, 3)
    assert runs(world) == [("retrying", None, 2, True, "runner_lost", 3), ("running", 12, 2, None, None, 3)]
    assert world.rows.sql("select claim from bucketd.claims") == [(12,)]
    again = await scheduler.reaper.run_once()
    assert (again.buried, again.claims, again.runs) == (0, 0, 0)


async def test_a_runner_that_left_is_dead_at_once(world: World) -> None:
    left = runner(world)
    claimed(world, left, 11)
    world.rows.sql("update bucketd.runners set dead_at = bucketd.bucketd_now()")
    report = await (await world.scheduler()).reaper.run_once()
    assert (report.buried, report.runs) == (0, 3)


async def test_dead_is_for_good(world: World) -> None:
    dead = runner(world, silent_s=31)
    scheduler = await world.scheduler()
    await scheduler.reaper.run_once()
    first = world.rows.one("select dead_at from bucketd.runners where runner_id = %s", dead)
    world.rows.sql("update bucketd.runners set heartbeat_at = bucketd.bucketd_now()")
    claimed(world, dead, 13)
    assert (await scheduler.reaper.run_once()).runs == 3
    assert world.rows.one("select dead_at from bucketd.runners where runner_id = %s", dead) == first


async def test_a_claim_without_any_runner_is_recovered(world: World) -> None:
    claimed(world, uuid4(), 14)
    assert (await (await world.scheduler()).reaper.run_once()).runs == 3


async def test_rows_that_went_on_meanwhile_are_left_alone(world: World) -> None:
    """The claim row is still there; two runs have ended, one is held by another claim by now."""
    dead, alive = runner(world, silent_s=31), runner(world)
    first, second, third = claimed(world, dead, 11)
    world.rows.sql(
        "update bucketd.runs set status = 'succeeded', claim = null, finished_at = now() where scheduled_at = to_timestamp(%s)",
        first,
    )
    world.rows.sql("update bucketd.runs set claim = 12, attempt = 3 where scheduled_at = to_timestamp(%s)", second)
    world.rows.sql("insert into bucketd.claims values (12, %s, array[to_timestamp(%s)], now())", alive, second)
    assert (await (await world.scheduler()).reaper.run_once()).runs == 1
    found = dict(world.rows.sql("select extract(epoch from scheduled_at)::bigint, status::text from bucketd.runs"))
    assert found == {first: "succeeded", second: "running", third: "retrying"}


async def test_more_claims_than_a_pass_takes(world: World) -> None:

    dead = runner(world, silent_s=31)
    limit, reap.CLAIMS = reap.CLAIMS, 2
    try:
        for claim in range(20, 25):
            claimed(world, dead, claim, count=1)
        report = await (await world.scheduler()).reaper.run_once()
    finally:
        reap.CLAIMS = limit
    assert (report.claims, report.runs) == (5, 5)


async def test_the_hourly_scan_finds_running_rows_without_a_claim(world: World) -> None:
    claimed(world, None, 99)
    scheduler = await world.scheduler()
    await scheduler.reaper.run_once()
    assert runs(world)[0][0] == "running", "not before its time"
    scheduler.reaper._scanned_at -= module.SCAN_S
    await world.turn_to(world.minute + 300)
    await scheduler.reaper.run_once()
    assert runs(world)[0][0] == "running", "and not while it may have been claimed just now"
    scheduler.reaper._scanned_at -= module.SCAN_S
    await world.turn_to(world.minute + 700)
    await scheduler.reaper.run_once()
    assert runs(world) == [("retrying", None, 2, True, "runner_lost", 3)]


async def test_the_dead_are_forgotten_after_an_hour_unless_they_hold_something(world: World) -> None:
    runner(world, silent_s=31)
    scheduler = await world.scheduler()
    await scheduler.reaper.run_once()
    await world.turn_to(world.minute + 3_700)
    scheduler.reaper._scanned_at -= module.SCAN_S
    await scheduler.reaper.run_once()
    assert world.rows.one("select count(*) from bucketd.runners") == 0


async def test_rows_that_are_held_by_nothing_get_their_verdict(world: World) -> None:
    """A wake that saw a hold and its release passed each other."""
    id = world.rows.every(60)
    world.rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, wake_at)"
        " values (to_timestamp(%s), %s, 1, 'held', 'fire', 'default', 'infinity')",
        world.minute, id,
    )  # fmt: skip
    world.rows.sql("insert into bucketd.holds (scope) values ('all')")
    scheduler = await world.scheduler()
    assert (await scheduler.reaper.run_once()).runs == 0
    assert runs(world)[0][0] == "held"
    world.rows.sql("delete from bucketd.holds")
    assert (await scheduler.reaper.run_once()).runs == 1
    assert runs(world)[0][0] == "deferred"


async def test_an_interrupted_release_is_finished_while_others_are_on_hold(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps, from anywhere in the rows on: those of the tenant that is still on hold are in the way."""
    monkeypatch.setattr(holds, "STEP_ROWS", 4)
    monkeypatch.setattr(reap, "STRANDED_IDLE", 20)
    free = [world.rows.every(60, tenant="free") for _ in range(3)]
    still = [world.rows.every(60, tenant="still") for _ in range(3)]
    world.rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, wake_at)"
        " select to_timestamp(%s) - n * interval '1 hour', s.id, 1, 'held', 'fire', s.tenant, 'infinity'"
        " from bucketd.schedules s, generate_series(1, 5) n",
        world.minute,
    )  # fmt: skip
    world.rows.sql("insert into bucketd.holds (scope, tenant) values ('tenant', 'still')")
    scheduler = await world.scheduler()
    assert (await scheduler.reaper.run_once()).runs == 15
    found = {id: [run[1] for run in world.rows.runs(id)] for id in [*free, *still]}
    assert found == {id: ["skipped"] * 4 + ["deferred"] for id in free} | {id: ["held"] * 5 for id in still}
    world.rows.sql("insert into bucketd.holds (scope) values ('all')")
    world.rows.sql("delete from bucketd.holds where scope = 'tenant'")
    assert (await scheduler.reaper.run_once()).runs == 0


async def test_runs_without_a_claim_wake_at_once_in_another_history_of_postgres(world: World) -> None:
    """A failover took back the result of one run of a claim; its runner had counted that, and then deleted the claim with the last."""
    scheduler = await world.scheduler()
    claimed(world, None, 11)
    assert (await scheduler.reaper.run_once()).runs == 0
    assert runs(world) == [("running", 11, 2, None, None, 3)]
    assert scheduler.node.history is not None
    scheduler.node.history = "another"
    assert (await scheduler.reaper.run_once()).runs == 3
    assert runs(world) == [("retrying", None, 2, True, "runner_lost", 3)]
    claimed(world, None, 12)  # for a while: runners hear of it later
    assert (await scheduler.reaper.run_once()).runs == 3
