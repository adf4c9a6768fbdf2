"""Pauses that end by themselves: lifted ahead of their time, silent until then; and every way to end or move one before."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import Client, ScheduleInput, every
from bucketd.client.results import Schedule
from bucketd.errors import InvalidInput
from bucketd.store import pauses
from tests.support.rows import Rows

AHEAD_S = 180.0


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        client.targets.put("hook", "http://localhost:9/hook")
        client.schedules.put("a", every("10s", phase=0), target="hook")
        yield client


Lift = psycopg.AsyncConnection[Any]


def now(rows: Rows) -> datetime:
    return datetime.fromtimestamp(rows.now(), UTC)


def soon(rows: Rows, by_s: float = 100) -> datetime:
    return (now(rows) + timedelta(seconds=by_s)).replace(microsecond=0)


def state(rows: Rows, name: str = "a") -> tuple[Any, ...]:
    """(paused, floor) as stored."""
    found = rows.sql("select paused, floor from bucketd.schedules where name = %s", name)[0]
    return found[0], found[1].astimezone(UTC)


def first(client: Client) -> datetime:
    return client.schedules.next("a", 1)[0]


def pause(rows: Rows, until: datetime, name: str = "a") -> None:
    """As raw SQL does it, or the client for an end that is far: some node has to lift it."""
    rows.sql(
        "update bucketd.schedules set paused = true, pause_reason = 'works', paused_until = %s where name = %s",
        until,
        name,
    )


async def lifted(client: Client, connection: Lift, rows: Rows, until: datetime) -> Schedule:
    pause(rows, until)
    assert await pauses.lift(connection, AHEAD_S) == 1
    return client.schedules.get("a")


async def test_the_client_lifts_what_ends_soon_itself(client: Client, connection: Lift, rows: Rows) -> None:
    until = soon(rows, 5)
    shown = client.schedules.pause("a", reason="works", until=until)
    assert (shown.changed, shown.paused, shown.pause_reason, shown.paused_until) == (True, True, "works", until)
    assert state(rows) == (False, until)
    assert await pauses.lift(connection, AHEAD_S) == 0
    again = client.schedules.pause("a", reason="works", until=until)
    assert (again.changed, again.paused, again.revision) == (False, True, shown.revision)
    client.schedules.pause("a", until=soon(rows, 3_600))
    assert state(rows)[0], "a far end is left to the nodes"


async def test_it_is_lifted_ahead_and_stays_silent_until_then(client: Client, connection: Lift, rows: Rows) -> None:
    until = soon(rows)
    shown = await lifted(client, connection, rows, until)
    assert state(rows) == (False, until)
    assert (shown.paused, shown.pause_reason, shown.paused_until) == (True, "works", until)
    assert [one.name for one in client.schedules.list(paused=True)] == ["a"]
    assert client.schedules.list(paused=False).items == ()
    assert until <= first(client) < until + timedelta(seconds=10)
    assert await pauses.lift(connection, AHEAD_S) == 0
    rows.turn_clock(101)
    shown = client.schedules.get("a")
    assert not shown.paused
    assert client.schedules.list(paused=True).items == ()
    assert (shown.pause_reason, shown.paused_until) == (None, None), "nothing is left of a pause that is over"


async def test_only_what_ends_within_the_time_asked_for(client: Client, connection: Lift, rows: Rows) -> None:
    names = {"gone": -5, "near": 170, "far": 190, "open": None, "active": None}
    for name, by_s in names.items():
        client.schedules.put(name, every("1h"), target="hook")
        if by_s is not None:
            pause(rows, now(rows) + timedelta(seconds=by_s), name)
    client.schedules.pause("open")
    assert await pauses.lift(connection, AHEAD_S) == 2
    assert {name: state(rows, name)[0] for name in names} == {
        "gone": False, "near": False, "far": True, "open": True, "active": False,
    }  # fmt: skip
    assert not client.schedules.get("gone").paused
    floor = state(rows, "gone")[1]
    assert timedelta(seconds=0) < now(rows) - floor < timedelta(seconds=60), (
        "from its end on, though nobody lifted it then"
    )


async def test_a_schedule_that_somebody_writes_is_left_for_the_next_time(
    client: Client, connection: Lift, rows: Rows, dsn: str
) -> None:
    pause(rows, soon(rows))
    with psycopg.connect(dsn) as other:
        other.execute("select from bucketd.schedules for update")
        assert await pauses.lift(connection, AHEAD_S) == 0
    assert await pauses.lift(connection, AHEAD_S) == 1


async def test_more_than_a_statement_takes(
    client: Client, connection: Lift, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "MOST", 3)
    for n in range(7):
        client.schedules.put(f"s{n}", every("1h"), target="hook")
        pause(rows, soon(rows), f"s{n}")
    assert [await pauses.lift(connection, AHEAD_S) for _ in range(4)] == [3, 3, 1, 0]


async def test_the_log_says_that_the_pause_has_ended(client: Client, connection: Lift, rows: Rows) -> None:
    await lifted(client, connection, rows, soon(rows))
    resumed, paused = client.audit(name="a", limit=2)
    assert (paused.action, paused.actor) == ("pause", "bucketd")
    assert (resumed.action, resumed.actor) == ("resume", "bucketd: the pause has ended")
    client.schedules.put("b", every("1h"), target="hook")
    assert client.audit(limit=1).items[0].actor == "bucketd"


@pytest.mark.parametrize("by_s", [-1, 0])
def test_an_end_that_is_not_ahead_is_refused(client: Client, rows: Rows, by_s: int) -> None:
    before = rows.sql("select * from bucketd.schedules")
    with pytest.raises(InvalidInput, match="in the future") as caught:
        client.schedules.pause("a", until=now(rows) + timedelta(seconds=by_s))
    assert caught.value.field == "until"
    with pytest.raises(InvalidInput):
        client.schedules.pause("a", until=datetime(2099, 1, 1))
    assert rows.sql("select * from bucketd.schedules") == before


def test_the_clusters_clock_says_what_is_ahead(client: Client, rows: Rows) -> None:
    rows.turn_clock(7_200)
    with pytest.raises(InvalidInput):
        client.schedules.pause("a", until=datetime.now(UTC) + timedelta(hours=1))
    assert client.schedules.pause("a", until=datetime.now(UTC) + timedelta(hours=3)).paused


async def test_the_same_pause_again_changes_nothing(client: Client, rows: Rows) -> None:
    until = soon(rows, 3_600)
    assert client.schedules.pause("a", reason="works", until=until).changed
    again = client.schedules.pause("a", reason="works", until=until)
    assert (again.changed, again.revision) == (False, 2)
    other = client.schedules.pause("a", reason="works")
    assert (other.changed, other.paused_until) == (True, None), "what is not passed is not kept"


# Ended or moved by hand, also when it was lifted already.


@pytest.mark.parametrize("is_lifted", [False, True])
@pytest.mark.parametrize("how", ["resume", "put", "put_many"])
async def test_ended_by_hand_it_fires_from_then_on(
    client: Client, connection: Lift, rows: Rows, is_lifted: bool, how: str
) -> None:
    until = soon(rows)
    pause(rows, until)
    if is_lifted:
        await pauses.lift(connection, AHEAD_S)
    before = rows.now()
    if how == "resume":
        assert client.schedules.resume("a").changed
        assert not client.schedules.resume("a").changed
    elif how == "put":
        assert client.schedules.put("a", every("10s", phase=0), target="hook", paused=False).changed
    else:
        put = [ScheduleInput(name="a", timing=every("10s", phase=0), target="hook", paused=False)]
        assert client.schedules.put_many(put)[0].status == "updated"
        assert client.schedules.put_many(put)[0].status == "unchanged"
    shown = client.schedules.get("a")
    assert (shown.paused, shown.pause_reason, shown.paused_until) == (False, None, None)
    paused, floor = state(rows)
    assert not paused
    assert before <= floor.timestamp() <= rows.now()
    assert first(client) < until
    assert await pauses.lift(connection, AHEAD_S) == 0


@pytest.mark.parametrize("is_lifted", [False, True])
@pytest.mark.parametrize("paused", [None, True])
async def test_an_edit_leaves_it_alone(
    client: Client, connection: Lift, rows: Rows, is_lifted: bool, paused: bool | None
) -> None:
    until = soon(rows)
    pause(rows, until)
    if is_lifted:
        await pauses.lift(connection, AHEAD_S)
    edited = client.schedules.put("a", every("20s", phase=0), target="hook", payload=1, paused=paused)
    assert (edited.paused, edited.pause_reason, edited.paused_until) == (True, "works", until)
    bulk = ScheduleInput(name="a", timing=every("10s", phase=5), target="hook", paused=paused)
    client.schedules.put_many([bulk])
    await pauses.lift(connection, AHEAD_S)
    assert state(rows) == (False, until)
    assert client.schedules.get("a").paused
    assert until <= first(client) < until + timedelta(seconds=10)


@pytest.mark.parametrize("by_s", [50, 150])
async def test_a_new_end_counts_though_the_old_one_was_lifted(
    client: Client, connection: Lift, rows: Rows, by_s: int
) -> None:
    """Sooner or later than the first: the first occurrence at or after the new end fires."""
    await lifted(client, connection, rows, soon(rows))
    until = soon(rows, by_s)
    moved = client.schedules.pause("a", until=until)
    assert (moved.paused, moved.paused_until) == (True, until)
    await pauses.lift(connection, AHEAD_S)
    assert state(rows) == (False, until)
    assert until <= first(client) < until + timedelta(seconds=10)


async def test_paused_for_good_after_a_lift_and_resumed_it_fires_at_once(
    client: Client, connection: Lift, rows: Rows
) -> None:
    until = soon(rows)
    await lifted(client, connection, rows, until)
    client.schedules.pause("a")
    assert await pauses.lift(connection, AHEAD_S) == 0
    client.schedules.resume("a")
    assert first(client) < until


async def test_raw_sql_may_do_the_same(client: Client, connection: Lift, rows: Rows) -> None:
    until = soon(rows)
    rows.sql("update bucketd.schedules set paused = true, paused_until = %s", until)
    await pauses.lift(connection, AHEAD_S)
    assert state(rows) == (False, until)
    rows.sql("update bucketd.schedules set paused_until = null")
    assert state(rows)[1] < until
    rows.sql("update bucketd.schedules set paused = true, paused_until = %s", until)
    rows.sql("update bucketd.schedules set paused = false")
    assert state(rows)[1] == until, "lifted by hand: it still ends when it said"


async def test_a_put_that_creates_has_no_pause_of_another(client: Client, connection: Lift, rows: Rows) -> None:
    made = client.schedules.put("b", every("1h"), target="hook", paused=True)
    assert isinstance(made.id, UUID)
    assert (made.paused, made.pause_reason, made.paused_until) == (True, None, None)
    assert await pauses.lift(connection, AHEAD_S) == 0
