"""Every condition of the confirm statement, one at a time: what it refuses has no row."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from bucketd.store import confirm, runners
from bucketd.store.clock import utc
from bucketd.store.confirm import Seen, Verdict
from bucketd.store.connect import make_pool
from bucketd.store.fires import ASKED
from tests.runner.conftest import World

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def hot(world: World) -> AsyncIterator[Connection]:
    """A connection as the runner's own."""
    pool: AsyncConnectionPool
    async with make_pool(world.settings, application="test", size=1, hot=True) as pool, pool.connection() as connection:
        yield connection


@pytest.fixture
async def runner_id(hot: Connection) -> UUID:
    """A live runner."""
    born = uuid4()
    await runners.join(hot, born, host="test", pid=1)
    return born


async def ask(
    hot: Connection, runner_id: UUID, packed: list[bytes], *, claim: int = 7, again: bool = False
) -> list[Seen]:
    """The confirm statement's answer for these packed fires."""
    arrays = confirm.columns([ASKED.unpack(fire) for fire in packed])
    lines = await confirm.confirm(hot, runner_id, claim, arrays, dead_after_s=30.0, again=again)
    return sorted(Seen._make(line) for line in lines)


async def verdict(hot: Connection, runner_id: UUID, fire: bytes) -> Verdict:
    """Of one fire; also checks that there is a row if and only if the verdict says so."""
    (line,) = await ask(hot, runner_id, [fire])
    assert line.is_new == (line.verdict == Verdict.RUN)
    return Verdict(line.verdict)


async def test_a_good_fire_becomes_a_claimed_row(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"), payload='{"a":  1}', tenant="acme", timeout_s=7)
    at = world.now_s - 5
    (line,) = await ask(hot, runner_id, [world.fire(schedule, at)])
    assert line.verdict == Verdict.RUN
    assert line.is_new
    assert line.payload == '{"a":  1}'  # as stored, blanks and all
    assert (line.tenant, line.timeout_s) == ("acme", 7)
    assert line.revisions == f"{line.target_id}:1"
    (run,) = world.runs()
    assert (run["status"], run["attempt"], run["claim"], run["origin"], run["tenant"]) == (
        "running",
        1,
        7,
        "fire",
        "acme",
    )
    assert run["scheduled_at"].timestamp() == at
    assert run["started_at"] is not None
    (claim,) = world.sql("select * from bucketd.claims")
    assert (claim["claim"], claim["runner_id"]) == (7, runner_id)
    assert [instant.timestamp() for instant in claim["instants"]] == [at]


async def test_the_same_key_again_is_no_new_row_and_no_claim(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    fire = world.fire(schedule, world.now_s - 5)
    await ask(hot, runner_id, [fire], claim=7)
    (line,) = await ask(hot, runner_id, [fire], claim=8)
    assert line.verdict == Verdict.RUN
    assert not line.is_new
    assert [run["claim"] for run in world.runs()] == [7]
    assert [row["claim"] for row in world.sql("select claim from bucketd.claims")] == [7]


async def test_new_and_old_keys_in_one_batch_are_told_apart(world: World, hot: Connection, runner_id: UUID) -> None:
    target = world.target("http://h/")
    schedules = [world.schedule(target) for _ in range(6)]
    fires = [world.fire(schedule, world.now_s - 5) for schedule in schedules]
    await ask(hot, runner_id, fires[::2], claim=7)
    lines = await ask(hot, runner_id, fires, claim=8)
    assert [line.is_new for line in lines] == [False, True] * 3


async def test_a_missing_schedule_has_no_line(world: World, hot: Connection, runner_id: UUID) -> None:
    assert await ask(hot, runner_id, [world.fire(uuid4(), world.now_s - 5)]) == []
    assert world.runs() == []


GUARDS: dict[str, tuple[Verdict, dict[str, Any], int, dict[str, int]]] = {
    "paused": (Verdict.PAUSED, {"paused": True}, 5, {}),
    "of a version that never was": (Verdict.VERSION, {}, 5, {"version": 2}),
    "before the floor": (Verdict.FLOOR, {"floor": "in 1 hour"}, 5, {}),
    "before its start": (Verdict.WINDOW, {"starts_at": "in 1 hour"}, 5, {}),
    "from its end on": (Verdict.WINDOW, {"ends_at": "at the instant"}, 5, {}),
    "early": (Verdict.EARLY, {}, -30, {}),
    "late, skip": (Verdict.LATE, {"misfire": "skip"}, 61, {}),
    "late, run_once, a successor is due": (Verdict.LATE, {"misfire": "run_once"}, 90, {"after_s": 60}),
    # Settling catches up: the newest of the window, up to the cap, behind live work. A runner sees one fire, not how many there are.
    "late, catch_up": (Verdict.LATE, {"misfire": "catch_up"}, 61, {"after_s": 0}),
    "late, catch_up, deadline": (Verdict.LATE, {"misfire": "catch_up", "deadline_s": 70}, 80, {}),
    "late, run_once, deadline": (Verdict.LATE, {"misfire": "run_once", "deadline_s": 70}, 80, {"after_s": 0}),
    "deadline below the threshold": (Verdict.LATE, {"deadline_s": 10}, 20, {}),
    "late by an own threshold": (Verdict.LATE, {"misfire": "skip", "misfire_threshold_s": 10}, 20, {}),
}
PASSED: dict[str, tuple[dict[str, Any], int, dict[str, int]]] = {
    "just due": ({}, 0, {}),
    "skip, inside the threshold": ({"misfire": "skip"}, 50, {}),
    "run_once, the successor is not due": ({"misfire": "run_once"}, 90, {"after_s": 600}),
    "run_once, no successor": ({"misfire": "run_once"}, 90, {"after_s": 0}),
    "run_once, the successor is beyond the end": ({"misfire": "run_once", "ends_at": "1 s after the instant"}, 90, {}),
    "catch_up, inside the threshold": ({"misfire": "catch_up"}, 50, {}),
    "between start and end": ({"starts_at": "at the instant", "ends_at": "1 s after the instant"}, 5, {}),
    "a wider threshold": ({"misfire": "skip", "misfire_threshold_s": 1000}, 600, {}),
}


def _instants(columns: dict[str, Any], at: int) -> dict[str, Any]:
    places = {"in 1 hour": at + 3600, "at the instant": at, "1 s after the instant": at + 1}
    return {name: utc(places[value]) if value in places else value for name, value in columns.items()}


@pytest.mark.parametrize("case", GUARDS)
async def test_a_guard_refuses(case: str, world: World, hot: Connection, runner_id: UUID) -> None:
    expected, columns, late_s, fire = GUARDS[case]
    at = world.now_s - late_s
    columns = _instants(columns, at)
    floor = columns.pop("floor", None)
    schedule = world.schedule(world.target("http://h/"), **columns)
    if floor:
        world.sql("update bucketd.schedules set floor = %s", floor)
    assert await verdict(hot, runner_id, world.fire(schedule, at, **fire)) == expected
    assert world.runs() == []
    assert world.sql("select 1 from bucketd.claims") == []


@pytest.mark.parametrize("case", PASSED)
async def test_beside_the_guard_it_runs(case: str, world: World, hot: Connection, runner_id: UUID) -> None:
    columns, late_s, fire = PASSED[case]
    at = world.now_s - late_s
    schedule = world.schedule(world.target("http://h/"), **_instants(columns, at))
    assert await verdict(hot, runner_id, world.fire(schedule, at, **fire)) == Verdict.RUN


async def test_jitter_moves_due_not_the_key(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"), jitter_s=3600)
    jitter = world.value("select jitter_offset_s from bucketd.schedules")
    if jitter == 0:  # one in 60 (the offset is below the period): nothing to see
        pytest.skip("this id's jitter is 0")
    at = world.now_s - jitter
    assert await verdict(hot, runner_id, world.fire(schedule, at + 2)) == Verdict.EARLY
    assert await verdict(hot, runner_id, world.fire(schedule, at)) == Verdict.RUN
    (run,) = world.runs()
    assert run["scheduled_at"].timestamp() == at
    assert run["jitter_offset_s"] == jitter


async def test_an_older_fire_is_due_by_the_jitter_of_its_version(
    world: World, hot: Connection, runner_id: UUID
) -> None:
    target = world.target("http://h/")
    jitters: dict[UUID, int] = {}
    while not any(jitter > 25 for jitter in jitters.values()):
        schedule = world.schedule(target, jitter_s=50, misfire="skip", misfire_threshold_s=10)
        jitters[schedule] = world.value("select jitter_offset_s from bucketd.schedules where id = %s", schedule)
    jitter = jitters[schedule]
    at = world.now_s - jitter
    world.sql("update bucketd.schedules set jitter_s = 0")
    assert await verdict(hot, runner_id, world.fire(schedule, at + 20)) == Verdict.EARLY
    assert await verdict(hot, runner_id, world.fire(schedule, at - 15)) == Verdict.LATE
    assert await verdict(hot, runner_id, world.fire(schedule, at)) == Verdict.RUN
    assert [(run["jitter_offset_s"], run["origin"]) for run in world.runs()] == [(jitter, "fire")]


async def test_early_says_how_long(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    (line,) = await ask(hot, runner_id, [world.fire(schedule, world.now_s + 10)])
    assert line.wait_s is not None
    assert 8 < line.wait_s <= 10


@pytest.mark.parametrize("scope", ["all", "tenant", "target"])
async def test_a_hold_keeps_back_its_own(scope: str, world: World, hot: Connection, runner_id: UUID) -> None:
    target, other = world.target("http://h/"), world.target("http://h/")
    held = world.schedule(target, tenant="acme")
    free = world.schedule(other, tenant="initech")
    world.sql(
        "insert into bucketd.holds (scope, tenant, target_id) values (%s, %s, %s)",
        scope,
        "acme" if scope == "tenant" else None,
        target if scope == "target" else None,
    )
    at = world.now_s - 5
    assert await verdict(hot, runner_id, world.fire(held, at)) == Verdict.HELD
    expected = Verdict.HELD if scope == "all" else Verdict.RUN
    assert await verdict(hot, runner_id, world.fire(free, at)) == expected


async def test_an_old_version_is_good_inside_its_interval(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    world.shift_clock("-10 minutes")
    edited = world.now_s
    world.sql("update bucketd.schedules set phase = 7")
    world.shift_clock("0")
    inside, after = edited - 5, edited + 5
    args = {"after_s": 0}
    assert await verdict(hot, runner_id, world.fire(schedule, inside, version=1, **args)) == Verdict.LATE  # not current
    world.sql("update bucketd.schedules set misfire_threshold_s = 3600")
    assert await verdict(hot, runner_id, world.fire(schedule, inside, version=1, **args)) == Verdict.RUN
    assert await verdict(hot, runner_id, world.fire(schedule, after, version=1, **args)) == Verdict.VERSION
    assert await verdict(hot, runner_id, world.fire(schedule, after, version=2, **args)) == Verdict.RUN
    assert await verdict(hot, runner_id, world.fire(schedule, inside - 1, version=2, **args)) == Verdict.VERSION
    world.sql("update bucketd.schedules set phase = 8")  # closes version 2: its interval has a beginning, too
    assert await verdict(hot, runner_id, world.fire(schedule, inside - 2, version=2, **args)) == Verdict.VERSION
    assert await verdict(hot, runner_id, world.fire(schedule, after + 1, version=2, **args)) == Verdict.RUN


async def test_a_late_run_says_so(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    assert await verdict(hot, runner_id, world.fire(schedule, world.now_s - 50)) == Verdict.RUN
    assert await verdict(hot, runner_id, world.fire(schedule, world.now_s - 90, after_s=600)) == Verdict.RUN
    assert [run["origin"] for run in world.runs()] == ["late", "fire"]


@pytest.mark.parametrize(
    "change", ["retention_floor = days_through, days_from = days_through", "days_through = days_from"]
)
async def test_outside_the_days_nothing_is_confirmed(
    change: str, world: World, hot: Connection, runner_id: UUID
) -> None:
    schedule = world.schedule(world.target("http://h/"))
    world.sql(f"update bucketd.cluster set {change}")
    assert await verdict(hot, runner_id, world.fire(schedule, world.now_s - 5)) == Verdict.DAYS


@pytest.mark.parametrize(
    "change", ["dead_at = bucketd.bucketd_now()", "heartbeat_at = bucketd.bucketd_now() - interval '31 s'"]
)
async def test_a_dead_runner_takes_nothing(change: str, world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    world.sql(f"update bucketd.runners set {change}")
    assert await verdict(hot, runner_id, world.fire(schedule, world.now_s - 5)) == Verdict.RUNNER_DEAD
    assert world.runs() == []


async def test_mine_finds_only_rows_of_the_claim(world: World, hot: Connection, runner_id: UUID) -> None:
    target = world.target("http://h/")
    packed = [world.fire(world.schedule(target), world.now_s - 5) for _ in range(3)]
    await ask(hot, runner_id, packed[:1], claim=7)
    await ask(hot, runner_id, packed[1:2], claim=8)
    arrays = confirm.columns([ASKED.unpack(fire) for fire in packed])
    assert await confirm.mine(hot, 8, arrays) == {2}


async def test_instants_beyond_2038_fit(world: World, hot: Connection, runner_id: UUID) -> None:
    schedule = world.schedule(world.target("http://h/"))
    (line,) = await ask(hot, runner_id, [world.fire(schedule, 2**31 + 10, after_s=2**32 - 1)])
    assert line.verdict == Verdict.DAYS
