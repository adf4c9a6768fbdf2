"""schedules.put_many: a result a row, all or nothing unless asked otherwise, chunks that do not clash."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from bucketd import Client, ScheduleInput, at, cron, every
from bucketd.client import put as put_module
from bucketd.errors import InvalidBatch, InvalidInput
from tests.client.conftest import count


def some(n: int, **fields: Any) -> list[ScheduleInput]:
    return [ScheduleInput(name=f"s{i:05d}", timing=every("15m"), **({"target": "hook"} | fields)) for i in range(n)]


def test_each_row_gets_its_result_in_input_order(client: Client) -> None:
    client.schedules.put("same", every("15m"), target="hook")
    client.schedules.put("old", every("15m"), target="hook")
    rows = [
        ScheduleInput(
            name="zz",
            timing=cron("H 3 * * *"),
            target="hook",
            payload={"tab": "a\tb\\n\n", "q": '"', "nul": "\0", "é": "☃"},
        ),
        ScheduleInput(name="same", timing=every("15m"), target="hook"),
        ScheduleInput(name="old", timing=every("20m"), target="hook"),
        ScheduleInput(name="aa\\N", timing=every("15m"), target="hook", tenant="t\\.", timeout_s=2_000, paused=True),
    ]
    results = client.schedules.put_many(rows)
    assert [(r.index, r.status, r.name) for r in results] == [
        (0, "created", "zz"),
        (1, "unchanged", "same"),
        (2, "updated", "old"),
        (3, "created", "aa\\N"),
    ]
    assert results[3].warnings
    assert client.schedules.get("zz").id == results[0].id
    assert client.schedules.get("zz").payload == rows[0].payload
    assert client.schedules.get("aa\\N", tenant="t\\.").paused
    assert {r.status for r in client.schedules.put_many(rows)} == {"unchanged"}
    assert not client.schedules.put("zz", rows[0].timing, target="hook", payload=rows[0].payload).changed


def test_a_bulk_put_that_changes_nothing_writes_nothing(client: Client, sql: psycopg.Connection[Any]) -> None:
    rows = [*some(48), *some(50, max_attempts=9, retry_base_s=0.1, retry_cap_s=1e-5)[48:]]
    client.schedules.put_many(rows)
    found = client.schedules.get("s00049")
    assert (found.max_attempts, found.retry_base_s, found.retry_cap_s) == (9, 0.1, 1e-5)
    before = sql.execute("select xmin, xmax, ctid from bucketd.schedules order by name").fetchall()
    client.schedules.put_many(rows)
    client.schedules.put("s00049", every("15m"), target="hook", max_attempts=9, retry_base_s=0.1, retry_cap_s=1e-5)
    assert sql.execute("select xmin, xmax, ctid from bucketd.schedules order by name").fetchall() == before


def bad_rows() -> list[ScheduleInput | InvalidInput]:
    past = datetime.now(UTC) - timedelta(days=1)
    return [
        ScheduleInput(name="good", timing=every("15m"), target="hook"),
        ScheduleInput(name="nul\0", timing=every("15m"), target="hook"),
        ScheduleInput(name="good", timing=every("1h"), target="hook"),
        ScheduleInput(name="lost", timing=every("15m"), target="nowhere"),
        ScheduleInput(name="big", timing=every("15m"), target="hook", payload="x" * 70_000),
        ScheduleInput(name="late", timing=at(past), target="hook"),
        ScheduleInput(name="odd", timing="* * * * *", target="hook"),  # type: ignore[arg-type]
        InvalidInput("line 8 is no JSON", field="line"),
        ScheduleInput(name="fine", timing=every("15m"), target="hook"),
    ]


FIELDS = [None, "name", "name", "target", "payload", "timing", "timing", "line", None]


def test_one_bad_row_and_nothing_is_written(client: Client, sql: psycopg.Connection[Any]) -> None:
    seen: list[int] = []
    with pytest.raises(InvalidBatch, match="7 of 9 rows are invalid") as caught:
        client.schedules.put_many(bad_rows(), progress=lambda done, total: seen.append(done))
    assert [r.index for r in caught.value.invalid] == [1, 2, 3, 4, 5, 6, 7]
    assert (count(sql, "schedules"), count(sql, "specs"), seen) == (0, 1, [])


def test_bad_rows_are_named_and_the_others_written_if_asked(client: Client) -> None:
    results = client.schedules.put_many(bad_rows(), skip_invalid=True)
    assert [r.status for r in results] == ["created", *["invalid"] * 7, "created"]
    assert [r.field for r in results] == FIELDS
    assert all(r.reason for r in results[1:8])
    assert [s.name for s in client.schedules.list()] == ["fine", "good"]


def test_progress_reaches_the_total(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_module, "CHUNK", 10)
    seen: list[tuple[int, int]] = []
    client.schedules.put_many(
        [*some(25), InvalidInput("no")], skip_invalid=True, progress=lambda *step: seen.append(step)
    )
    assert seen == [(11, 26), (21, 26), (26, 26)]


def test_chunks_in_one_transaction_of_the_callers(client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_module, "CHUNK", 10)
    with psycopg.connect(dsn) as connection:
        assert len(client.schedules.put_many(some(25), connection=connection)) == 25
        assert len(client.schedules.list()) == 0
        connection.rollback()
    assert len(client.schedules.list()) == 0


def test_a_dry_run_tells_and_writes_nothing(client: Client) -> None:
    client.schedules.put_many(some(3))
    results = client.schedules.put_many(
        [*some(2), ScheduleInput(name="new", timing=every("1m"), target="hook")], dry_run=True, prune=True
    )
    assert [r.status for r in results] == ["unchanged", "unchanged", "created", "deleted"]
    assert [s.name for s in client.schedules.list()] == ["s00000", "s00001", "s00002"]


def test_pruning_deletes_the_other_schedules_of_the_batchs_tenants(client: Client) -> None:
    client.schedules.put_many(some(4))
    client.schedules.put("s", every("15m"), target="hook", tenant="elsewhere")
    broken = ScheduleInput(name="s00003", timing=every("15m"), target="nowhere")
    results = client.schedules.put_many([*some(2), broken], skip_invalid=True, prune=True)
    assert [(r.index, r.status, r.name) for r in results[3:]] == [(-1, "deleted", "s00002")]
    assert [s.name for s in client.schedules.list()] == ["s00000", "s00001", "s00003", "s"]


def test_pruning_needs_to_know_what_an_invalid_row_stands_for(client: Client) -> None:
    client.schedules.put_many(some(3))
    with pytest.raises(InvalidInput, match="pruning would delete"):
        client.schedules.put_many([*some(1), InvalidInput("line 2 is no JSON")], skip_invalid=True, prune=True)
    assert len(client.schedules.list()) == 3


def test_a_pause_stays_when_a_bulk_put_says_nothing_of_it(client: Client) -> None:
    client.schedules.put_many(some(3))
    client.schedules.pause("s00001")
    results = client.schedules.put_many(
        [*some(2, payload=1), ScheduleInput(name="s00002", timing=every("15m"), target="hook", paused=True)]
    )
    assert [r.status for r in results] == ["updated"] * 3
    assert [s.paused for s in client.schedules.list()] == [False, True, True]


def test_bulk_puts_of_the_same_names_at_once_all_succeed(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    """In different input order; without one order of writing they deadlock."""
    failures: list[BaseException] = []
    created: list[int] = []
    start = threading.Barrier(3)

    def put(turn: int) -> None:
        rows = some(2_000, payload=turn, jitter_s=5 + turn)
        try:
            with Client(dsn) as own:
                start.wait()
                created.append(sum(r.status == "created" for r in own.schedules.put_many(rows if turn else rows[::-1])))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=put, args=(turn,)) for turn in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(created) == 2_000 == count(sql, "schedules")


def test_nothing_at_all_is_fine(client: Client) -> None:
    assert client.schedules.put_many([]) == []
    assert client.schedules.put_many(iter([]), prune=True) == []
