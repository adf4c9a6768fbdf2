"""What is too long for one transaction: windows that nobody watched, and backfills that people ask for, in chunks."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd.scheduler import expander as module
from bucketd.scheduler.node import Scheduler
from bucketd.store import settle
from tests.scheduler.world import World


async def expand(scheduler: Scheduler) -> int:
    """Expands until nothing is owed; rows written."""
    created = 0
    while (report := await scheduler.expander.run_once()).more:
        assert not report.full
        created += report.created
    return created


def owed(world: World) -> int:
    return int(world.rows.one("select count(*) from bucketd.backfills where finished_at is null"))


def shape(world: World, id: UUID) -> list[tuple[Any, ...]]:
    return [(at - world.minute, *rest) for at, *rest in world.rows.runs(id)]


async def away(world: World, for_s: int) -> Scheduler:
    """Nobody was there for so long; then a node comes, and settles as far as it can."""
    await world.turn_to(world.minute + for_s)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    return scheduler


async def ask(world: World, from_s: float, until_s: float, **filters: Any) -> int:
    """A user's backfill."""
    names = ["kind", "from_at", "until_at", *filters]
    values = ["user", datetime.fromtimestamp(from_s, UTC), datetime.fromtimestamp(until_s, UTC), *filters.values()]
    return int(world.rows.one(
        f"insert into bucketd.backfills ({', '.join(names)}) values ({', '.join(['%s'] * len(names))}) returning backfill_id",
        *values,
    ))  # fmt: skip


@pytest.mark.parametrize("for_s", [290, 640])
async def test_a_long_window_gets_the_verdicts_of_a_short_one(world: World, for_s: int) -> None:
    """At 640 s the window is owed and expanded, at 290 s it is not: the same rule gives both answers."""
    policies: list[dict[str, Any]] = [
        {"misfire": "run_once"}, {"misfire": "skip"}, {"misfire": "catch_up"}, {"misfire": "catch_up", "deadline_s": 185},
    ]  # fmt: skip
    ids = [world.rows.every(30, **policy) for policy in policies]
    scheduler = await away(world, for_s)
    assert (owed(world) == 256) == (for_s > 300)
    assert await expand(scheduler) == (0 if for_s < 300 else sum(len(shape(world, id)) for id in ids))
    last = for_s // 60 * 60 - 1  # of the last whole minute
    slots = list(range(30, last + 1, 30))
    late = [slot for slot in slots if for_s - slot > 60]
    fresh = [(slot, "deferred", "settle", 0, None) for slot in slots if slot not in late]
    once, skip, all_, deadline = (shape(world, id) for id in ids)
    assert once == [(late[-1], "deferred", "settle", len(late) - 1, "misfire"), *fresh]
    assert skip == [(late[-1], "skipped", "settle", len(late) - 1, "misfire"), *fresh]
    assert all_ == [*[(slot, "deferred", "catch_up", 0, "catch_up") for slot in late], *fresh]
    within = [slot for slot in late if for_s - slot <= 185]
    assert [run[0] for run in deadline] == [*within, *[run[0] for run in fresh]]
    assert sum(run[3] for run in deadline) == len(late) - len(within)
    assert world.settled() == {world.minute + last}
    before = world.everything()
    world.rows.sql(
        "update bucketd.backfills set finished_at = null, cursor_id = null, cursor_at = null where kind = 'settle'"
    )
    assert await expand(scheduler) == 0
    assert world.everything() == before, "it stays settled"


async def test_more_slots_than_are_listed_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 10)
    once, skip, cron = (
        world.rows.every(1, misfire="run_once"), world.rows.every(2, misfire="skip"), world.rows.cron("* * * * *")
    )  # fmt: skip
    scheduler = await away(world, 640)
    await expand(scheduler)
    for id, slots in ((once, 598), (skip, 299), (cron, 9)):
        assert sum(run[3] + 1 for run in shape(world, id)) == slots, id


async def test_older_slots_that_have_a_row_are_not_counted_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minutes before an outage were confirmed, but not settled any more."""
    monkeypatch.setattr(module, "LISTED", 10)
    id = world.rows.every(5)
    first = await world.scheduler()
    await first.planner.run_once()
    await world.turn_to(world.minute + 58)
    await world.drain(first)
    confirmed = len(await world.consume())
    await first.ownership.leave()
    scheduler = await away(world, 640)
    await expand(scheduler)
    rows = shape(world, id)
    assert [run[2] for run in rows].count("fire") == confirmed - 1 == 11  # the one at second 0 was before its creation
    assert len(rows) + sum(run[3] for run in rows) == 599 // 5


async def test_bounds_of_a_schedule_bound_what_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 10)
    begins, ends, edited, paused = (world.rows.every(5) for _ in range(4))
    at = "to_timestamp(%s)"
    world.rows.sql(f"update bucketd.schedules set starts_at = {at} where id = %s", world.minute + 500, begins)
    world.rows.sql(f"update bucketd.schedules set ends_at = {at} where id = %s", world.minute + 100, ends)
    world.rows.sql("update bucketd.schedules set paused = true where id = %s", paused)
    await world.turn_to(world.minute + 300.5)
    world.rows.sql("update bucketd.schedules set phase = 2 where id = %s", edited)
    scheduler = await away(world, 640)
    await expand(scheduler)
    totals = [sum(run[3] + 1 for run in shape(world, id)) for id in (begins, ends, edited, paused)]
    assert totals == [20, 19, 120, 0]  # 500..595; 5..95; 5..300 and 302..597
    assert max(run[0] for run in shape(world, ends)) == 95


async def test_jitter_that_reaches_into_the_window_from_an_older_version(world: World) -> None:
    """Due lies in the window, the instant before it, and the version that made it was closed before it too."""
    id = next(
        id for id in (world.rows.every(3_600, world.minute + 5, jitter_s=3_000) for _ in range(200))
        if 100 < world.rows.of(id, "jitter_offset_s") < 500
    )  # fmt: skip
    await world.turn_to(world.minute + 20)
    world.rows.sql("update bucketd.schedules set phase = mod(phase + 1800, 3600) where id = %s", id)
    world.rows.sql("update bucketd.partitions set settled_through = to_timestamp(%s)", world.minute + 59)
    scheduler = await away(world, 640)
    await expand(scheduler)
    assert [run[0] for run in shape(world, id)] == [5]


@pytest.mark.parametrize(
    "bound", [("CHUNK_SCHEDULES", 3), ("CHUNK_SCHEDULES", 10), ("CHUNK_SLOTS", 20), ("CHUNK_SLOTS", 90)]
)
async def test_windows_go_in_chunks_of_schedules(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
) -> None:
    monkeypatch.setattr(module, *bound)
    ids = [world.rows.every(60, id=UUID(int=(n << 64) | 7)) for n in range(1, 11)]
    scheduler = await away(world, 640)
    largest = 0
    while (report := await scheduler.expander.run_once()).more:
        largest = max(largest, report.created)
    rows = [len(shape(world, id)) for id in ids]
    assert [sum(run[3] + 1 for run in shape(world, id)) for id in ids] == [9] * 10
    assert largest == rows[0] * {3: 3, 20: 3}.get(bound[1], 10), "a schedule lists 9 slots"


async def test_older_slots_are_counted_in_a_row_that_is_there_if_the_newest_all_have_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage between two healthy stretches of one window."""
    monkeypatch.setattr(module, "LISTED", 10)
    id, other = world.rows.every(5), world.rows.every(60)
    world.rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, finished_at)"
        " select to_timestamp(at), %s, 'default', %s, 'succeeded', 'fire', now()"
        " from generate_series(%s::bigint, %s::bigint, 5) at",
        id, world.rows.target(), world.minute + 530, world.minute + 595,
    )  # fmt: skip
    scheduler = await away(world, 640)
    await expand(scheduler)
    rows = shape(world, id)
    assert [run[0] for run in rows] == list(range(530, 600, 5))
    assert {run[0]: run[3] for run in rows if run[3]} == {550: 105}, "5..525, in the oldest of the ten that were listed"
    assert world.rows.of(id, "floor").timestamp() == world.minute + 550
    assert sum(run[3] + 1 for run in shape(world, other)) == 9
    before = world.everything()
    world.rows.sql("update bucketd.backfills set finished_at = null, cursor_id = null where kind = 'settle'")
    await expand(scheduler)
    assert world.everything() == before


async def test_a_chunk_waits_for_settling_of_its_partition(world: World) -> None:
    """A late commit that is settled and the window that is expanded count the same schedule: one after the other."""
    id = world.rows.every(30)
    scheduler = await away(world, 640)
    world.rows.sql("delete from bucketd.backfills where partition_id <> %s", id.bytes[15])
    async with await psycopg.AsyncConnection.connect(world.settings.dsn.get_secret_value()) as settling:
        epochs = {id.bytes[15]: scheduler.node.owned[id.bytes[15]].epoch}
        assert await settle.lock(settling, epochs, compare=True)
        chunk = asyncio.create_task(scheduler.expander.run_once())
        await asyncio.wait({chunk}, timeout=0.5)
        assert not chunk.done()
        raised = world.minute + 300
        await settling.execute("update bucketd.schedules set floor = to_timestamp(%s) where id = %s", [raised, id])
        await settling.commit()
        await chunk
    assert sum(run[3] + 1 for run in shape(world, id)) == 10, "300..570: it saw what was settled"


@pytest.mark.parametrize("kind", ["user", "settle"])
async def test_a_backfill_that_postgres_refuses_ends_alone(
    world: World, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Else it would be refused for ever, on one node after the other, and nothing behind it would be expanded."""
    broken = world.rows.every(60, tenant="broken", id=UUID(int=(1 << 64) | 7))
    world.rows.every(60, id=UUID(int=(1 << 64) | 8))
    if kind == "user":
        scheduler = await world.scheduler()
        await ask(world, world.minute - 600, world.minute, tenant="broken")
        await ask(world, world.minute - 600, world.minute, tenant="default")
    else:
        scheduler = await away(world, 640)
    world.rows.sql("alter table bucketd.runs add constraint refused check (tenant <> 'broken') not valid")
    assert await expand(scheduler) > 0
    assert owed(world) == 0
    assert shape(world, broken) == []
    ((ended, error, created),) = world.rows.sql(
        "select finished_at is not null, error, runs_created from bucketd.backfills where error is not null"
    )
    assert ended
    assert "CheckViolation" in error
    assert created == 0
    assert caplog.text.count("backfill_refused") == 1


async def test_a_window_that_is_owed_goes_before_backfills_and_does_not_wait_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 5)
    id = world.rows.every(60, misfire="skip")
    await ask(world, world.minute - 3_600, world.minute)
    await world.turn_to(world.minute + 640)
    scheduler = await world.scheduler()
    while not (report := await scheduler.expander.run_once()).full:
        assert report.more or report.created or owed(world) == 0
        if not report.more:
            break
    await ask(world, world.minute - 7_200, world.minute - 3_600)
    assert (await scheduler.expander.run_once()).full
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    while not (await scheduler.expander.run_once()).full:
        pass
    assert world.rows.one("select count(*) from bucketd.backfills where kind = 'settle' and finished_at is null") == 0
    assert [run for run in shape(world, id) if run[1] == "skipped"]


async def test_a_backfill_makes_every_occurrence_whatever_floor_and_policy_say(world: World) -> None:
    every, cron, paused = (
        world.rows.every(60, 5, misfire="skip"), world.rows.cron("*/5 * * * *"), world.rows.every(600, paused=True)
    )  # fmt: skip
    scheduler = await world.scheduler()
    id = await ask(world, world.minute - 3_600, world.minute)
    created = await expand(scheduler)
    assert [run[0] for run in shape(world, every)] == list(range(-3_595, 0, 60))
    assert {run[1:] for run in shape(world, every)} == {("deferred", "backfill", 0, None)}
    assert len(shape(world, cron)) == 12
    assert len(shape(world, paused)) == 6
    assert world.rows.one("select bool_and(background) from bucketd.runs")
    stored = "select runs_created, finished_at is not null from bucketd.backfills where backfill_id = %s"
    assert world.rows.sql(stored, id) == [(created, True)] == [(78, True)]


@pytest.mark.parametrize("chunk", [2, 7, 60, 61])
async def test_the_cursor_goes_on_inside_a_schedule(world: World, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    ids = [world.rows.every(600, 5) for _ in range(3)]
    scheduler = await world.scheduler()
    await ask(world, world.minute - 6_000, world.minute)
    largest = 0
    while (report := await scheduler.expander.run_once()).more:
        largest = max(largest, report.created)
    assert largest <= chunk, "a transaction is bounded"
    assert [[run[0] for run in shape(world, id)] for id in ids] == [[run[0] for run in shape(world, ids[0])]] * 3
    assert len(shape(world, ids[0])) == 10


async def test_a_chunk_that_is_rolled_back_did_not_happen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    id = world.rows.every(600, 5)
    scheduler = await world.scheduler()
    await ask(world, world.minute - 6_000, world.minute)
    assert (await scheduler.expander.run_once()).created == 4
    world.rows.sql(
        "create function stop() returns trigger language plpgsql as $$ begin raise query_canceled; end $$;"
        "create trigger stop before update on bucketd.backfills for each row execute function stop()"
    )
    with pytest.raises(psycopg.errors.QueryCanceled):
        await scheduler.expander.run_once()
    assert len(shape(world, id)) == 4
    world.rows.sql("drop function stop cascade")
    assert await expand(scheduler) == 6
    assert len(shape(world, id)) == 10


async def test_rows_that_exist_keep_their_life(world: World) -> None:
    id = world.rows.every(600, 5)
    scheduler = await world.scheduler()
    await ask(world, world.minute - 6_000, world.minute)
    await expand(scheduler)
    world.rows.sql(
        "update bucketd.runs set status = 'succeeded', wake_at = null, finished_at = now() where schedule_id = %s", id
    )
    await ask(world, world.minute - 6_600, world.minute)
    assert await expand(scheduler) == 1
    assert [run[1] for run in shape(world, id)] == ["deferred"] + ["succeeded"] * 10


@pytest.mark.parametrize(("fraction", "first"), [(0.0, 0), (0.2, 60), (0.8, 60)])
async def test_bounds_between_two_seconds(world: World, fraction: float, first: int) -> None:
    """[from, until): an instant before from is out, one before until is in."""
    id = world.rows.every(60)
    scheduler = await world.scheduler()
    begin = world.minute - 600
    await ask(world, begin + fraction, begin + 120 + fraction)
    await expand(scheduler)
    last = 60 if fraction == 0 else 120
    assert [run[0] + 600 for run in shape(world, id)] == list(range(first, last + 1, 60))


@pytest.mark.parametrize("by", ["tenant", "name", "target_id", "labels"])
async def test_filters(world: World, by: str) -> None:
    chosen = world.rows.every(600, 5, tenant="a", name="n", labels='{"k": "v", "l": "w"}')
    other = world.rows.every(600, 5, tenant="b", labels='{"k": "x"}')
    world.rows.sql("insert into bucketd.targets (name, url) values ('second', 'http://127.0.0.1:9/')")
    target = world.rows.one("select target_id from bucketd.targets where name = 'second'")
    world.rows.sql("update bucketd.schedules set target_id = %s where id = %s", target, chosen)
    value = {"tenant": "a", "name": "n", "target_id": target, "labels": '{"k": "v"}'}[by]
    scheduler = await world.scheduler()
    await ask(world, world.minute - 600, world.minute, **{by: value})
    await expand(scheduler)
    assert len(shape(world, chosen)) == 1
    assert shape(world, other) == []


async def test_days_that_retention_let_go_meanwhile_have_expired(world: World) -> None:
    """Else one old backfill would end every node, again and again: its rows have no day any more."""
    id = world.rows.every(3_600, 5)
    scheduler = await world.scheduler()
    first = world.rows.one("select extract(epoch from days_from)::bigint from bucketd.cluster")
    await ask(world, first - 86_400, first + 7_200)
    await expand(scheduler)
    assert [run[0] + world.minute - first >= 0 for run in shape(world, id)] == [True] * 2
    assert owed(world) == 0


async def test_two_nodes_expand_different_backfills(world: World) -> None:
    world.rows.every(600, 5)
    one, other = await world.scheduler(), await world.scheduler(own=False)
    await one.ownership.run_once()
    await other.ownership.run_once()
    await one.ownership.run_once()
    await other.ownership.run_once()
    for _ in range(2):
        await ask(world, world.minute - 600, world.minute)
    first = "select backfill_id from bucketd.backfills order by 1 limit 1 for update"
    with psycopg.connect(world.settings.dsn.get_secret_value()) as connection:
        connection.execute(first)
        assert (await other.expander.run_once()).more
        found = world.rows.sql("select finished_at is not null from bucketd.backfills order by backfill_id")
    assert found == [(False,), (True,)]
