"""Runs of one schedule that meet (I10): the policy holds by the state of the database, whoever confirms or wakes at the same time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from bucketd.store import confirm, long_runs, reap, results, runners, wake
from bucketd.store.arrays import packed_instant, packed_int2, packed_int8
from bucketd.store.confirm import Seen, Verdict
from bucketd.store.connect import make_pool
from bucketd.store.fires import ASKED
from bucketd.store.long_runs import Outcome
from bucketd.store.model import instant, run_id
from bucketd.store.operation import drive_async
from bucketd.store.results import Failed, Keys
from bucketd.store.wake import Room, Woken
from tests.runner.conftest import World
from tests.support.target import Target
from tests.support.waiting import wait_until

Connection = psycopg.AsyncConnection[Any]
POLICIES = ["skip", "queue_one", "queue_all", "cancel_running"]
LONG_S = 3_600
Leave: TypeAlias = "Callable[[World, Runner, UUID, int], Awaitable[None]]"


class Runner:
    """What two runner processes do to Postgres, each on a connection of its own."""

    def __init__(self, connection: Connection, runner_id: UUID, claim: int) -> None:
        self.connection = connection
        self.runner_id = runner_id
        self.claim = claim

    async def confirm(self, *fires: bytes) -> list[Seen]:
        self.claim += 2
        arrays = confirm.columns([ASKED.unpack(fire) for fire in fires])
        lines = await confirm.confirm(
            self.connection, self.runner_id, self.claim, arrays, dead_after_s=30.0, again=False
        )
        return sorted(Seen._make(line) for line in lines)

    async def wake(self) -> list[Woken]:
        self.claim += 2
        room = Room(100, 100, {}, {})
        return await wake.take(self.connection, self.runner_id, self.claim, room=room, dead_after_s=30.0)


@pytest.fixture
async def pair(world: World) -> AsyncIterator[tuple[Runner, Runner]]:
    """Two live runners."""
    pool: AsyncConnectionPool
    async with (
        make_pool(world.settings, application="test", size=2, hot=True) as pool,
        pool.connection() as first,
        pool.connection() as second,
    ):
        made = [Runner(connection, uuid4(), claim) for claim, connection in enumerate((first, second), 1)]
        for runner in made:
            await runners.join(runner.connection, runner.runner_id, host="test", pid=1)
        yield made[0], made[1]


@pytest.fixture
def one(pair: tuple[Runner, Runner]) -> Runner:
    return pair[0]


def states(world: World, schedule: UUID) -> list[str]:
    """Status of its runs, oldest first; a skipped or cancelled one with its reason."""
    rows = world.runs(schedule_id=schedule)
    return [row["status"] + (f" {row['reason']}" if row["reason"] else "") for row in rows]


def finish(world: World, **where: Any) -> None:
    """As their results would."""
    clause = " and ".join(f"{name} = %s" for name in where) or "true"
    world.sql(
        "update bucketd.runs set status = 'succeeded', claim = null, wake_at = null, finished_at = bucketd.bucketd_now()"
        f" where status = 'running' and {clause}",
        *where.values(),
    )


def due(world: World) -> None:
    """What waits is due now."""
    world.sql("update bucketd.runs set wake_at = bucketd.bucketd_now() where wake_at < 'infinity'")


@pytest.mark.parametrize(
    ("overlap", "found"),
    [
        ("allow", ["running", "running", "running"]),
        ("skip", ["running", "skipped overlap", "skipped overlap"]),
        ("queue_one", ["running", "waiting", "skipped overlap"]),
        ("queue_all", ["running", "waiting", "waiting"]),
        ("cancel_running", ["cancelled overlap", "cancelled overlap", "running"]),
    ],
)
async def test_each_policy_while_a_run_goes_on(overlap: str, found: list[str], world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap=overlap)
    at = world.now_s - 50
    told = [(await one.confirm(world.fire(schedule, at + n)))[0] for n in range(3)]
    assert states(world, schedule) == found
    verdicts = [Verdict.RUN if state.startswith(("running", "cancelled")) else Verdict.OVERLAP for state in found]
    assert [(line.verdict, line.is_new) for line in told] == [(v, v == Verdict.RUN) for v in verdicts]
    rows = world.runs(schedule_id=schedule)
    assert [row["attempt"] for row in rows] == [int(v == Verdict.RUN) for v in verdicts]
    cancelled = [line.cancelled for line in told]
    if overlap == "cancel_running":
        assert cancelled == [None, *(f"{schedule}@{(at + n) * 1_000_000}" for n in range(2))]
        assert [row["claim"] for row in rows[:2]] == [None, None]  # whatever their calls bring is fenced
    else:
        assert cancelled == [None] * 3


@pytest.mark.parametrize("overlap", POLICIES)
async def test_a_run_that_has_ended_is_in_nobodys_way(overlap: str, world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap=overlap)
    at = world.now_s - 50
    for n in range(3):
        (line,) = await one.confirm(world.fire(schedule, at + n))
        assert line.verdict == Verdict.RUN
        finish(world)
    assert states(world, schedule) == ["succeeded"] * 3


@pytest.mark.parametrize(
    ("after_s", "own_timeout_s", "asks"),
    [(60, None, True), (90, None, True), (91, None, False), (LONG_S, None, False), (900, 900, True), (0, None, False)],
)
async def test_a_slot_is_asked_for_only_if_the_call_can_last_until_the_next_one(
    after_s: int, own_timeout_s: int | None, asks: bool, world: World, one: Runner
) -> None:
    """The target's time-out is 30 s, and a dead runner is found out within 60."""
    schedule = world.schedule(world.target("http://h/"), timeout_s=own_timeout_s, overlap="skip")
    (line,) = await one.confirm(world.fire(schedule, world.now_s - 5, after_s=after_s))
    assert line.verdict == Verdict.RUN
    assert bool(world.sql("select 1 from bucketd.slots")) == asks


async def failed(world: World, one: Runner, schedule: UUID, at_s: int) -> None:
    await results.write_failed(one.connection, keys(one, schedule, at_s), [Failed(500, "no", 60.0, None)], [one.claim])


async def accepted(world: World, one: Runner, schedule: UUID, at_s: int) -> None:
    await results.write_accepted(one.connection, keys(one, schedule, at_s), [60], [one.claim])


async def lost(world: World, one: Runner, schedule: UUID, at_s: int) -> None:
    """The runner dies; another goes on."""
    world.sql("update bucketd.claims set runner_id = %s", uuid4())
    assert (await reap.recover(one.connection))[1] == 1


async def reported_failed(world: World, one: Runner, schedule: UUID, at_s: int) -> None:
    """Before the 202 was written."""
    run = await drive_async(long_runs.find(schedule, instant(at_s * 1_000_000)), one.connection)
    await drive_async(long_runs.complete(run, 1, Outcome("no"), 0.5), one.connection)


async def reported_alive(world: World, one: Runner, schedule: UUID, at_s: int) -> None:
    """Before the 202 was written."""
    run = await drive_async(long_runs.find(schedule, instant(at_s * 1_000_000)), one.connection)
    await drive_async(long_runs.heartbeat(run, 1), one.connection)


def keys(one: Runner, schedule: UUID, at_s: int) -> Keys:
    return Keys([schedule.bytes], [packed_instant(at_s * 1_000_000)], [packed_int2(1)], [packed_int8(one.claim)])


@pytest.mark.parametrize("slot", ["no slot", "the slot of a run that ended"])
@pytest.mark.parametrize("leave", [failed, accepted, lost, reported_failed, reported_alive])
async def test_who_leaves_the_happy_path_stands_at_the_slot(leave: Leave, slot: str, world: World, one: Runner) -> None:
    """However far away the next occurrence seemed."""
    schedule = world.schedule(world.target("http://h/", complete_within_s=60), overlap="skip")
    at = world.now_s - 50
    if slot != "no slot":
        await one.confirm(world.fire(schedule, at - 5))
        finish(world)
    await one.confirm(world.fire(schedule, at, after_s=LONG_S))
    await leave(world, one, schedule, at)
    (line,) = await one.confirm(world.fire(schedule, at + 40, after_s=LONG_S))
    assert line.verdict == Verdict.OVERLAP
    assert [row["scheduled_at"].timestamp() for row in world.sql("select scheduled_at from bucketd.slots")] == [at]


async def test_a_slot_of_a_run_that_goes_on_is_not_taken_by_one_that_leaves_the_happy_path(
    world: World, one: Runner
) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="skip")
    at = world.now_s - 50
    await one.confirm(world.fire(schedule, at, after_s=LONG_S))
    claim = one.claim
    world.run(schedule, at + 10, "running", attempt=1)
    world.sql("insert into bucketd.slots (schedule_id, asked_at, rule, scheduled_at) select %s, t, 'wait', t"
              " from to_timestamp(%s) t", schedule, at + 10)  # fmt: skip
    one.claim = claim
    await failed(world, one, schedule, at)
    assert [row["scheduled_at"].timestamp() for row in world.sql("select scheduled_at from bucketd.slots")] == [at + 10]


async def test_after_an_edit_the_run_before_is_looked_for(world: World, one: Runner) -> None:
    """Its next occurrence was an hour away, so it took no slot; now the next one is here."""
    schedule = world.schedule(world.target("http://h/"), overlap="skip")
    at = world.now_s - 5
    await one.confirm(world.fire(schedule, at, after_s=LONG_S))
    world.sql("update bucketd.schedules set phase = phase + 1 where id = %s", schedule)
    world.sql("update bucketd.schedules set timing_from = timing_from - interval '1 minute' where id = %s", schedule)
    (line,) = await one.confirm(world.fire(schedule, at - 1, version=1, after_s=LONG_S))
    assert line.verdict == Verdict.OVERLAP
    assert states(world, schedule) == ["skipped overlap", "running"]


async def test_of_several_fires_of_a_schedule_in_a_batch_the_oldest_asks(world: World, one: Runner) -> None:
    """The others are undecided, and come again; fires of schedules that may overlap all run."""
    strict, loose = (world.schedule(world.target("http://h/"), overlap=overlap) for overlap in ("queue_all", "allow"))
    at = world.now_s - 50
    fires = [world.fire(schedule, at + n) for schedule in (strict, loose) for n in range(3)]
    lines = await one.confirm(*fires)
    assert [Verdict(line.verdict) for line in lines] == [Verdict.RUN, Verdict.AGAIN, Verdict.AGAIN] + [Verdict.RUN] * 3
    assert [line.is_new for line in lines] == [True, False, False, True, True, True]
    assert (states(world, strict), states(world, loose)) == (["running"], ["running"] * 3)
    lines = await one.confirm(*fires[:3])
    assert [Verdict(line.verdict) for line in lines] == [Verdict.AGAIN, Verdict.OVERLAP, Verdict.AGAIN]
    assert not any(line.is_new for line in lines)
    assert states(world, strict) == ["running", "waiting"]
    (line,) = await one.confirm(fires[0])
    assert (line.verdict, line.is_new) == (Verdict.RUN, False)  # alone it is the duplicate that it is
    lines = await one.confirm(*fires[1:3])
    assert [Verdict(line.verdict) for line in lines] == [Verdict.AGAIN, Verdict.OVERLAP]
    assert states(world, strict) == ["running", "waiting", "waiting"]


async def test_many_fires_of_a_schedule_in_one_message_go_through(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook, overlap="skip")
    at = world.now_s - 50
    async with world.runner():
        world.put([world.fire(schedule, at + n) for n in range(30)])
        await wait_until(lambda: len(world.runs(schedule_id=schedule)) == 30, 10, "a row for each")
        await wait_until(lambda: "running" not in world.statuses(), 10, "the end of each")
        await world.until_quiet()
    assert set(world.statuses()) <= {"succeeded", "skipped"}
    assert target.most_in_flight == 1


async def test_an_older_run_that_comes_late_cancels_nothing(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="cancel_running")
    at = world.now_s - 5
    await one.confirm(world.fire(schedule, at))
    await one.confirm(world.fire(schedule, at - 10))
    assert states(world, schedule) == ["skipped overlap", "running"]


async def test_a_fire_that_comes_twice_cancels_nothing(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="cancel_running")
    at = world.now_s - 20
    first, second = world.fire(schedule, at), world.fire(schedule, at + 10)
    for fire in (first, second, first, second):
        await one.confirm(fire)
    assert states(world, schedule) == ["cancelled overlap", "running"]


@pytest.mark.parametrize("overlap", POLICIES)
async def test_two_occurrences_of_many_schedules_at_once(
    overlap: str, world: World, pair: tuple[Runner, Runner]
) -> None:
    """20 rounds of 500 schedules, two runners at the same moment: never two of a schedule go on, and none is forgotten."""
    target = world.target("http://h/")
    schedules = [world.schedule(target, overlap=overlap) for _ in range(500)]
    at = world.now_s - 55
    for turn in range(20):
        instants = at + 2 * turn, at + 2 * turn + 1
        fires = [[world.fire(schedule, instant) for schedule in schedules] for instant in instants]
        await asyncio.gather(pair[0].confirm(*fires[0]), pair[1].confirm(*fires[1]))
        going = Counter(row["schedule_id"] for row in world.runs(status="running"))
        assert going.total() == len(going) == 500, f"round {turn}: {500 - len(going)} without, {going.most_common(1)}"
        made = Counter(row["status"] for row in world.sql(
            "select status::text from bucketd.runs where scheduled_at >= to_timestamp(%s)", instants[0]
        ))  # fmt: skip
        assert made.total() == 1_000
        world.sql("delete from bucketd.runs where status = 'waiting'")
        finish(world)


async def test_a_trigger_finds_the_run_that_holds_no_slot(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="skip")
    await one.confirm(world.fire(schedule, world.now_s - 5, after_s=LONG_S))
    assert world.sql("select 1 from bucketd.slots") == []
    world.run(schedule, world.now_s + 0.5, origin="trigger")
    (woken,) = await one.wake()
    assert woken.status == "skipped"
    assert states(world, schedule) == ["running", "skipped overlap"]


@pytest.mark.parametrize(
    ("overlap", "origin", "found"),
    [
        ("skip", "trigger", "skipped overlap"),
        ("skip", "settle", "skipped overlap"),
        ("skip", "catch_up", "waiting"),
        ("skip", "backfill", "waiting"),
        ("queue_one", "settle", "waiting"),
        ("queue_all", "trigger", "waiting"),
        ("cancel_running", "trigger", "running"),
        ("allow", "trigger", "running"),
    ],
)
async def test_rows_that_wake_follow_the_policy(
    overlap: str, origin: str, found: str, world: World, one: Runner
) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap=overlap)
    at = world.now_s - 5
    await one.confirm(world.fire(schedule, at))
    world.run(schedule, at + 1, origin=origin)
    woken = await one.wake()
    assert states(world, schedule) == ["cancelled overlap" if overlap == "cancel_running" else "running", found]
    overtaken = [run_id(row.schedule_id, row.scheduled_at) for row in woken if row.status == "overtaken"]
    assert len(overtaken) == (overlap == "cancel_running")


async def test_who_waits_runs_when_the_one_before_has_ended_oldest_first(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="queue_all")
    at = world.now_s - 50
    for n in range(3):
        await one.confirm(world.fire(schedule, at + n))
    due(world)
    await one.wake()
    assert states(world, schedule) == ["running", "waiting", "waiting"]
    finish(world)
    (line,) = await one.confirm(world.fire(schedule, at + 3))
    assert line.verdict == Verdict.OVERLAP  # behind those that wait
    for done in range(1, 4):
        due(world)
        await one.wake()
        assert states(world, schedule) == ["succeeded"] * done + ["running"] + ["waiting"] * (3 - done)
        finish(world)


async def test_a_queue_is_bounded(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="queue_all")
    at = world.now_s - 50
    await one.confirm(world.fire(schedule, at))
    await one.confirm(world.fire(schedule, at + 1))
    world.sql("alter table bucketd.slots disable trigger slots_ask")
    world.sql("update bucketd.slots set queued = 1000")
    world.sql("alter table bucketd.slots enable trigger slots_ask")
    await one.confirm(world.fire(schedule, at + 2))
    assert states(world, schedule) == ["running", "waiting", "skipped overlap"]


async def test_a_retry_waits_for_a_newer_run_that_has_begun(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="skip")
    at = world.now_s - 30
    await one.confirm(world.fire(schedule, at + 10))
    world.run(schedule, at, "retrying", attempt=1, origin="fire")
    await one.wake()
    assert states(world, schedule) == ["waiting", "running"]
    finish(world)
    due(world)
    (woken,) = await one.wake()
    assert (woken.status, woken.attempt) == ("running", 2)


async def test_a_retry_that_a_newer_run_has_overtaken_is_cancelled(world: World, one: Runner) -> None:
    schedule = world.schedule(world.target("http://h/"), overlap="cancel_running")
    at = world.now_s - 30
    await one.confirm(world.fire(schedule, at + 10))
    world.run(schedule, at, "retrying", attempt=1, origin="fire")
    await one.wake()
    assert states(world, schedule) == ["cancelled overlap", "running"]


async def test_of_many_rows_that_wake_one_goes(world: World, pair: tuple[Runner, Runner]) -> None:
    schedules = [world.schedule(world.target("http://h/"), overlap="queue_all") for _ in range(20)]
    at = world.now_s - 30
    for schedule in schedules:
        for n in range(4):
            world.run(schedule, at + n)
    for _ in range(8):
        due(world)
        await asyncio.gather(pair[0].wake(), pair[1].wake())
        going = Counter(row["schedule_id"] for row in world.runs(status="running"))
        assert going.total() == len(going)
        finish(world)
    assert world.statuses() == {"succeeded": 80}


async def test_a_run_whose_row_is_being_written_is_cancelled_a_moment_later(
    world: World, pair: tuple[Runner, Runner]
) -> None:
    """Neither statement waits for the other: the one that writes may want this slot next."""
    one, two = pair
    schedule = world.schedule(world.target("http://h/"), overlap="cancel_running")
    at = world.now_s - 30
    await one.confirm(world.fire(schedule, at))
    async with two.connection.transaction():
        await two.connection.execute("select 1 from bucketd.runs for update")
        (line,) = await one.confirm(world.fire(schedule, at + 10))
    assert line.verdict == Verdict.OVERLAP
    assert states(world, schedule) == ["running", "waiting"]
    due(world)
    await one.wake()
    assert states(world, schedule) == ["cancelled overlap", "running"]


async def test_slots_of_old_runs_are_forgotten(world: World, one: Runner) -> None:
    schedules = [world.schedule(world.target("http://h/"), overlap="skip") for _ in range(3)]
    at = world.now_s - 5
    await one.confirm(*(world.fire(schedule, at) for schedule in schedules))
    finish(world, schedule_id=schedules[0])
    finish(world, schedule_id=schedules[1])
    for schedule, age in zip(schedules, ("2 hours", "1 minute", "2 hours"), strict=True):
        world.sql(
            "update bucketd.runs set scheduled_at = scheduled_at - %s::interval where schedule_id = %s", age, schedule
        )
        world.sql("alter table bucketd.slots disable trigger slots_ask")
        world.sql(
            "update bucketd.slots set scheduled_at = scheduled_at - %s::interval where schedule_id = %s", age, schedule
        )
        world.sql("alter table bucketd.slots enable trigger slots_ask")
    await reap.forget(one.connection)
    assert {row["schedule_id"] for row in world.sql("select schedule_id from bucketd.slots")} == set(schedules[1:])


async def test_a_backfill_of_a_schedule_that_must_not_overlap_goes_through_briskly(
    world: World, target: Target, hook: int
) -> None:
    """With the period of the look as it is by default: ten quick runs one after another take a second or two, not half a minute."""
    schedule = world.schedule(hook, overlap="skip")
    at = world.now_s - 100
    for n in range(10):
        world.run(schedule, at + n, origin="backfill", background=True)
    async with world.runner(wake_poll_s=1.0):
        begun = time.monotonic()
        await world.until({"succeeded": 10}, 15)
        assert time.monotonic() - begun < 6
    assert target.most_in_flight == 1
