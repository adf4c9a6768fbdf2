"""Two writers at once, a calendar's and a schedule's: the schedule ends with the newer dates whichever commits first."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from bucketd import Client, ScheduleInput, cron, every
from bucketd.errors import Conflict, InvalidInput
from tests.client.conftest import count
from tests.client.test_calendars import NEW_YEAR, XMAS, days_of, versions


@contextmanager
def blocked(sql: psycopg.Connection[Any], work: Callable[[], Any]) -> Iterator[list[Any]]:
    """`work` runs in a thread and waits for a lock; the block is to free it. Its result or error is in the list afterwards."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(2_000):
        waiting = sql.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchone()
        if waiting and waiting[0]:
            break
        assert thread.is_alive(), f"it did not wait: {outcome}"
        thread.join(0.005)
    else:
        raise AssertionError("nobody waits for a lock")
    yield outcome
    thread.join(30)
    assert not thread.is_alive()


def test_a_put_that_waits_for_an_edit_of_the_calendar_takes_the_new_dates(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    client.calendars.put("bank", [XMAS])
    with psycopg.connect(dsn) as editor:
        client.calendars.put("bank", [NEW_YEAR], connection=editor)
        put = lambda: client.schedules.put("a", every("1h"), target="hook", calendars=["bank"])  # noqa: E731
        with blocked(sql, put) as outcome:
            editor.commit()
    assert outcome[0].created
    assert days_of(sql) == [NEW_YEAR]


def test_an_edit_of_the_calendar_waits_for_a_put_and_then_changes_that_schedule_too(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    client.calendars.put("bank", [XMAS])
    with psycopg.connect(dsn) as writer:
        client.schedules.put("a", every("1h"), target="hook", calendars=["bank"], connection=writer)
        with blocked(sql, lambda: client.calendars.put("bank", [NEW_YEAR])) as outcome:
            writer.commit()
    assert outcome[0].schedules == 1
    assert days_of(sql) == [NEW_YEAR]
    assert versions(sql) == 1


def test_the_same_for_a_bulk_put(client: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    client.calendars.put("bank", [XMAS])
    put = [ScheduleInput(name=f"s{i}", timing=cron("H 9 * * *"), target="hook", calendars=["bank"]) for i in range(20)]
    with psycopg.connect(dsn) as editor:
        client.calendars.put("bank", [NEW_YEAR], connection=editor)
        with blocked(sql, lambda: client.schedules.put_many(put)) as outcome:
            editor.commit()
    assert {result.status for result in outcome[0]} == {"created"}
    with psycopg.connect(dsn) as writer:
        client.on(writer).schedules.put_many(
            [*put, ScheduleInput(name="a", timing=every(60), target="hook", calendars=["bank"])]
        )
        with blocked(sql, lambda: client.calendars.put("bank", [])):
            writer.commit()
    assert all(days_of(sql, name) == [] for name in ("a", *(f"s{i}" for i in range(20))))


def test_a_bulk_put_reads_the_dates_again_in_the_transaction_that_writes(
    client: Client, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change, and one calendar goes, between the check of all rows and the first chunk."""
    from bucketd.client import put as put_module

    client.calendars.put("bank", [XMAS])
    client.calendars.put("gone", [XMAS])
    chunks = put_module.Batch.chunks

    def meanwhile(batch: put_module.Batch) -> list[list[int]]:
        client.calendars.put("bank", [NEW_YEAR])
        client.calendars.delete("gone")
        return chunks(batch)

    monkeypatch.setattr(put_module.Batch, "chunks", meanwhile)
    one, other = client.schedules.put_many(
        [
            ScheduleInput(name="a", timing=every("1h"), target="hook", calendars=["bank"]),
            ScheduleInput(name="b", timing=every("1h"), target="hook", calendars=["gone"]),
        ]
    )
    assert days_of(sql) == [NEW_YEAR]
    assert (one.status, other.status, other.field) == ("created", "invalid", "calendars")


def test_a_delete_waits_for_a_put_that_names_it_and_then_refuses(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    client.calendars.put("bank", [XMAS])
    with psycopg.connect(dsn) as writer:
        client.schedules.put("a", every("1h"), target="hook", calendars=["bank"], connection=writer)
        with blocked(sql, lambda: client.calendars.delete("bank")) as outcome:
            writer.commit()
    assert isinstance(outcome[0], Conflict)
    assert client.calendars.get("bank").schedules == 1


def test_a_put_that_waits_for_a_delete_is_refused(client: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    client.calendars.put("bank", [XMAS])
    with psycopg.connect(dsn) as deleter:
        client.calendars.delete("bank", connection=deleter)
        put = lambda: client.schedules.put("a", every("1h"), target="hook", calendars=["bank"])  # noqa: E731
        with blocked(sql, put) as outcome:
            deleter.commit()
    assert isinstance(outcome[0], InvalidInput)
    assert count(sql, "schedules") == 0


def test_edits_of_two_calendars_of_the_same_schedules_at_once_both_hold(
    client: Client, sql: psycopg.Connection[Any], dsn: str
) -> None:
    """They want each other's calendars: one of them is put again."""
    for name in "xy":
        client.calendars.put(name, [])
    client.schedules.put_many(
        [ScheduleInput(name=f"s{i}", timing=cron("H 9 * * *"), target="hook", calendars=["x", "y"]) for i in range(50)]
    )
    start = threading.Barrier(2)
    errors: list[Exception] = []

    def edit(name: str) -> None:
        with Client(dsn) as own:
            for n in range(4):
                start.wait()
                try:
                    own.calendars.put(name, [XMAS + timedelta(days=(2 * n) + "xy".index(name))])
                except Exception as error:
                    errors.append(error)

    threads = [threading.Thread(target=edit, args=name) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    last = sorted(day for name in "xy" for day in client.calendars.get(name).dates)
    assert last == [XMAS + timedelta(days=6), XMAS + timedelta(days=7)]
    assert all(days_of(sql, f"s{i}") == last for i in range(50))
