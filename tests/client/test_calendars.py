"""Calendars: put, named, edited, deleted; and what becomes of the schedules that name one, whoever writes first."""

import inspect
from datetime import UTC, date, datetime, timedelta
from time import thread_time
from typing import Any

import psycopg
import pytest

from bucketd import AsyncClient, Client, ScheduleInput, cron, every
from bucketd.client.calendars import AsyncCalendars, Calendars
from bucketd.errors import Conflict, InvalidBatch, InvalidInput, NotFound
from bucketd.timing import load_rule
from tests.client.conftest import Rows, count
from tests.client.test_async import aclient as aclient

XMAS, NEW_YEAR = date(2027, 12, 25), date(2028, 1, 1)
_EPOCH = date(1970, 1, 1)


def days_of(sql: psycopg.Connection[Any], name: str = "a") -> list[date]:
    """The dates that the schedule's spec leaves out."""
    found = sql.execute(
        "select p.rule from bucketd.schedules s join bucketd.specs p on p.spec_id = s.spec_id"
        " where s.tenant = 'default' and s.name = %s",
        (name,),
    ).fetchone()
    assert found
    spec: Any = load_rule(found[0])
    return [_EPOCH + timedelta(days=day) for day in spec.exclude]


def versions(sql: psycopg.Connection[Any]) -> int:
    return count(sql, "schedule_versions")


def test_a_put_creates_then_changes_then_does_nothing(client: Client, sql: psycopg.Connection[Any]) -> None:
    first = client.calendars.put("bank", [NEW_YEAR, XMAS, XMAS])
    assert (first.dates, first.revision, first.schedules, first.tenant) == ((XMAS, NEW_YEAR), 1, 0, "default")
    before = sql.execute("select xmin, ctid from bucketd.calendars").fetchone()
    assert client.calendars.put("bank", iter([XMAS, NEW_YEAR])) == first
    assert sql.execute("select xmin, ctid from bucketd.calendars").fetchone() == before
    second = client.calendars.put("bank", [XMAS])
    assert (second.dates, second.revision, second.created_at) == ((XMAS,), 2, first.created_at)
    assert second.updated_at > first.updated_at
    assert client.calendars.get("bank") == second


@pytest.mark.parametrize(
    "dates", [["2027-12-25"], [datetime(2027, 12, 25, tzinfo=UTC)], "2027", 5, {XMAS: 1}, [XMAS, None], None]
)
def test_what_are_no_dates_is_refused(client: Client, sql: psycopg.Connection[Any], dates: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.calendars.put("bank", dates)
    assert caught.value.field == "dates"
    assert count(sql, "calendars") == 0


def test_the_number_of_dates_is_bounded(client: Client, sql: psycopg.Connection[Any]) -> None:
    many = [_EPOCH + timedelta(days=n) for n in range(5_001)]
    with pytest.raises(InvalidInput, match=r"at most 5,000 dates in dates, got 5,001"):
        client.calendars.put("bank", many)
    client.calendars.put("bank", many[:5_000])
    made = client.schedules.put("a", cron("0 9 * * *"), target="hook", calendars=["bank"], exclude=many[:7])
    assert made.calendars == ("bank",)
    assert days_of(sql) == many[:5_000]
    with pytest.raises(InvalidInput, match=r"at most 5,000 dates together, got 5,001"):
        client.schedules.put("a", cron("0 9 * * *"), target="hook", calendars=["bank"], exclude=[XMAS])
    client.calendars.put("more", [])
    client.schedules.put("a", cron("0 9 * * *"), target="hook", calendars=["bank", "more"])
    with pytest.raises(InvalidInput, match="together"):
        client.calendars.put("more", [XMAS])
    assert client.calendars.get("more").dates == ()
    assert days_of(sql) == many[:5_000]


def test_own_dates_and_those_of_calendars_are_left_out_together(client: Client, sql: psycopg.Connection[Any]) -> None:
    client.calendars.put("x", [XMAS])
    client.calendars.put("y", [NEW_YEAR, XMAS])
    client.calendars.put("x", [date(2030, 1, 1)], tenant="other")
    own = date(2027, 7, 4)
    made = client.schedules.put("a", every("1h"), target="hook", exclude=[own, own], calendars=["y", "x", "y"])
    assert (made.exclude, made.calendars) == ((own,), ("x", "y"))
    assert days_of(sql) == [own, XMAS, NEW_YEAR]
    again = client.schedules.put("a", every("1h"), target="hook", exclude=[own], calendars=["x", "y"])
    assert not again.changed
    # The same days by another way are the same rule, but not the same schedule.
    plain = client.schedules.put("b", cron("0 9 * * *"), target="hook", exclude=[XMAS, NEW_YEAR])
    named = client.schedules.put("c", cron("0 9 * * *"), target="hook", calendars=["y"])
    assert plain.exclude == (XMAS, NEW_YEAR)
    assert named.exclude == ()
    (specs,) = sql.execute("select count(distinct spec_id) from bucketd.schedules where name in ('b', 'c')").fetchall()
    assert specs == (1,)
    assert client.schedules.put("b", cron("0 9 * * *"), target="hook", calendars=["y"]).changed


def test_next_leaves_the_dates_out_in_the_zone_of_the_timing(client: Client, rows: Rows) -> None:
    tomorrow = (rows.now().astimezone(UTC) + timedelta(days=1)).date()
    client.calendars.put("x", [tomorrow + timedelta(days=1)])
    client.schedules.put("a", cron("0 23 * * *", tz="Asia/Tokyo"), target="hook", calendars=["x"], exclude=[tomorrow])
    found = [(at + timedelta(hours=9)).date() for at in client.schedules.next("a", 5)]
    assert tomorrow not in found
    assert tomorrow + timedelta(days=1) not in found
    assert tomorrow + timedelta(days=2) in found


@pytest.mark.parametrize(
    "change", [{"calendars": ["none"]}, {"calendars": ["x", "none"]}, {"calendars": ["bank"], "tenant": "t"}]
)
def test_an_unknown_calendar_is_refused_and_nothing_changes(
    client: Client, sql: psycopg.Connection[Any], change: dict[str, Any]
) -> None:
    client.calendars.put("x", [XMAS])
    client.calendars.put("bank", [XMAS])
    client.schedules.put("a", every("1h"), target="hook", payload=1)
    before = sql.execute("select * from bucketd.schedules").fetchall()
    with pytest.raises(InvalidInput, match="name of a calendar of tenant") as caught:
        client.schedules.put("a", every("2h"), target="hook", payload=2, **change)
    assert caught.value.field == "calendars"
    with pytest.raises(InvalidBatch):
        client.schedules.put_many(
            [
                ScheduleInput(name="a", timing=every("3h"), target="hook"),
                ScheduleInput(name="b", timing=every("3h"), target="hook", **change),
            ]
        )
    assert sql.execute("select * from bucketd.schedules").fetchall() == before


@pytest.mark.parametrize("value", ["bank", [1], [""], [None], ["a\0"], {"bank": 1}, 5])
def test_what_are_no_names_of_calendars_is_refused(client: Client, value: Any) -> None:
    client.calendars.put("bank", [XMAS])
    with pytest.raises(InvalidInput) as caught:
        client.schedules.put("a", every("1h"), target="hook", calendars=value)
    assert caught.value.field == "calendars"


def test_a_change_is_a_timing_edit_of_the_schedules_that_name_it(
    client: Client, sql: psycopg.Connection[Any], rows: Rows
) -> None:
    client.calendars.put("bank", [XMAS])
    client.calendars.put("own", [NEW_YEAR])
    client.schedules.put("a", cron("0 9 * * *"), target="hook", calendars=["bank", "own"], exclude=[date(2027, 5, 1)])
    client.schedules.put("b", every("1h"), target="hook", calendars=["bank"])
    client.schedules.put("other", every("1h"), target="hook", calendars=["own"])
    client.schedules.put("free", every("1h"), target="hook")
    client.calendars.put("bank", [XMAS], tenant="t")
    client.schedules.put("a", every("1h"), target="hook", calendars=["bank"], tenant="t")
    before = rows.now()
    old = client.schedules.get("a")
    phase = client.schedules.get("b").timing
    stored = client.calendars.put("bank", [date(2027, 12, 24)])
    assert stored.schedules == 2
    assert days_of(sql, "b") == [date(2027, 12, 24)]
    assert client.schedules.get("b").timing == phase, "an interval keeps its phase"
    changed = sql.execute(
        "select name, timing_version, timing_from >= %s, floor < %s, revision from bucketd.schedules where timing_version > 1"
        " order by name", (before, before),
    ).fetchall()  # fmt: skip
    assert changed == [("a", 2, True, True, 2), ("b", 2, True, True, 2)]
    closed = sql.execute(
        "select v.timing_version, v.valid_from = s.created_at, v.valid_until = s.timing_from"
        " from bucketd.schedule_versions v join bucketd.schedules s on s.id = v.schedule_id"
    ).fetchall()
    assert closed == [(1, True, True)] * 2, (
        "what was due before follows the old dates; nothing before fires by the new ones"
    )
    assert days_of(sql) == [date(2027, 5, 1), date(2027, 12, 24), NEW_YEAR]
    assert client.schedules.get("a").exclude == old.exclude
    assert not client.schedules.put(
        "a", cron("0 9 * * *"), target="hook", calendars=["bank", "own"], exclude=[date(2027, 5, 1)]
    ).changed


def test_a_change_that_adds_nothing_new_for_a_schedule_leaves_it_alone(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    client.calendars.put("bank", [])
    client.schedules.put("a", every("1h"), target="hook", calendars=["bank"], exclude=[XMAS])
    client.calendars.put("bank", [XMAS])
    assert (client.schedules.get("a").revision, versions(sql)) == (1, 0)


def test_more_users_than_a_chunk_takes(
    client: Client, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketd.client.calendars.CHUNK", 7)
    client.calendars.put("bank", [XMAS])
    put = [ScheduleInput(name=f"s{i}", timing=cron("H 9 * * *"), target="hook", calendars=["bank"]) for i in range(21)]
    assert {result.status for result in client.schedules.put_many(put)} == {"created"}
    assert client.calendars.put("bank", [NEW_YEAR]).schedules == 21
    assert versions(sql) == 21
    assert all(days_of(sql, f"s{i}") == [NEW_YEAR] for i in range(21))
    assert {result.status for result in client.schedules.put_many(put)} == {"unchanged"}


def test_thousands_of_schedules_name_a_calendar_of_thousands_of_dates(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    """What they share is made once, and not for each: the server ends a transaction that is idle for 5 s."""
    dates = [XMAS + timedelta(days=n) for n in range(5_000)]
    client.calendars.put("bank", dates)
    put = [
        ScheduleInput(name=f"s{i}", timing=cron(f"{i % 60} 9 * * *"), target="hook", calendars=["bank"])
        for i in range(2_000)
    ]
    began = thread_time()
    client.schedules.put_many(put)
    client.calendars.put("bank", dates[1:])
    assert thread_time() - began < 3, "one by one it is 10 s"
    assert versions(sql) == 2_000
    assert count(sql, "specs") == 1 + 2 * 60


def test_a_calendar_that_is_named_cannot_be_deleted(client: Client, sql: psycopg.Connection[Any]) -> None:
    client.calendars.put("bank", [XMAS])
    client.schedules.put("a", every("1h"), target="hook", calendars=["bank"])
    with pytest.raises(Conflict, match="named by 1 schedules"):
        client.calendars.delete("bank")
    assert client.calendars.get("bank").schedules == 1
    client.calendars.put("bank", [XMAS], tenant="t")
    client.calendars.delete("bank", tenant="t")
    client.schedules.put("a", every("1h"), target="hook")
    assert days_of(sql) == []
    client.calendars.delete("bank")
    with pytest.raises(NotFound, match="name of a calendar"):
        client.calendars.delete("bank")
    with pytest.raises(NotFound, match="name of a calendar"):
        client.calendars.get("bank")


def test_pages_by_tenant_and_name(client: Client) -> None:
    for tenant, name in (("t", "b"), ("default", "b"), ("default", "a"), ("t", "a")):
        client.calendars.put(name, [XMAS], tenant=tenant)
    seen, cursor = [], None
    while True:
        page = client.calendars.list(limit=3, cursor=cursor)
        seen += [(one.tenant, one.name) for one in page]
        if (cursor := page.cursor) is None:
            break
    assert seen == [("default", "a"), ("default", "b"), ("t", "a"), ("t", "b")]
    assert [one.name for one in client.calendars.list(tenant="t")] == ["a", "b"]
    with pytest.raises(InvalidInput):
        client.calendars.list(cursor="none")


def test_in_the_callers_transaction_a_rollback_leaves_nothing(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    client.calendars.put("bank", [XMAS])
    client.schedules.put("a", every("1h"), target="hook", calendars=["bank"])
    with psycopg.connect(dsn) as connection:
        bound = client.on(connection)
        bound.calendars.put("bank", [NEW_YEAR])
        bound.calendars.put("second", [XMAS])
        assert bound.calendars.get("bank").dates == (NEW_YEAR,)
        bound.schedules.put("b", every("1h"), target="hook", calendars=["second"])
        connection.rollback()
    assert client.calendars.get("bank").dates == (XMAS,)
    assert (count(sql, "calendars"), count(sql, "schedules"), versions(sql)) == (1, 1, 0)
    assert days_of(sql) == [XMAS]


def test_an_autocommit_connection_gets_each_call_whole(client: Client, sql: psycopg.Connection[Any]) -> None:
    bound = client.on(sql)
    bound.calendars.put("bank", [XMAS])
    bound.schedules.put("a", every("1h"), target="hook", calendars=["bank"])
    sql.execute("create function bucketd.fail() returns trigger language plpgsql as $$ begin raise 'no'; end $$")
    sql.execute("create trigger fail before update on bucketd.schedules for each row execute function bucketd.fail()")
    with pytest.raises(Exception, match="no"):
        bound.calendars.put("bank", [NEW_YEAR])
    assert client.calendars.get("bank").dates == (XMAS,), "the calendar and its schedules change together or not at all"


async def test_the_async_twin(aclient: AsyncClient, sql: psycopg.Connection[Any]) -> None:
    made = await aclient.calendars.put("bank", [XMAS])
    assert made.revision == 1
    await aclient.schedules.put("a", every("1h"), target="hook", calendars=["bank"], exclude=[NEW_YEAR])
    assert (await aclient.calendars.put("bank", [])).schedules == 1
    assert days_of(sql) == [NEW_YEAR]
    assert [one.name for one in await aclient.calendars.list()] == ["bank"]
    with pytest.raises(Conflict):
        await aclient.calendars.delete("bank")
    with pytest.raises(InvalidInput):
        await aclient.schedules.put("b", every("1h"), target="hook", calendars=["none"])
    results = await aclient.schedules.put_many(
        [ScheduleInput(name="c", timing=every("1h"), target="hook", calendars=["bank"])]
    )
    assert results[0].status == "created"


def test_the_twins_promise_the_same() -> None:
    for name, function in inspect.getmembers(Calendars, inspect.isfunction):
        twin = getattr(AsyncCalendars, name)
        assert inspect.getdoc(function) == inspect.getdoc(twin), name
        assert str(inspect.signature(twin)).replace("Async", "") == str(inspect.signature(function)), name
        assert name.startswith("_") or inspect.iscoroutinefunction(twin)
