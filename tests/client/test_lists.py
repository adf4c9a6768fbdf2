"""Pages: every row on exactly one of them, filters, and bounded work."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest

from bucketd import Client, ScheduleInput, every
from bucketd.client import Page
from bucketd.client import history as history_module
from bucketd.client.targets import Targets
from bucketd.errors import NotFound
from tests.client.conftest import Rows

T = TypeVar("T")
HOUR = timedelta(hours=1)


def all_pages(page: Callable[[str | None], Page[T]]) -> tuple[list[T], int]:
    """All items, and the number of pages."""
    found: list[T] = []
    cursor, pages = None, 0
    while True:
        got = page(cursor)
        found += got.items
        pages += 1
        if got.cursor is None:
            return found, pages
        cursor = got.cursor


def test_pages_of_schedules_cover_each_once(client: Client) -> None:
    rows = [
        ScheduleInput(name=f"n{i % 7}-{i}", tenant=f"t{i % 3}", timing=every("1h"), target="hook") for i in range(50)
    ]
    client.schedules.put_many(rows)
    found, pages = all_pages(lambda cursor: client.schedules.list(limit=7, cursor=cursor))
    assert sorted((s.tenant, s.name) for s in found) == sorted((r.tenant, r.name) for r in rows)
    assert pages == 8
    exact, pages = all_pages(lambda cursor: client.schedules.list(limit=25, cursor=cursor))
    assert (len(exact), pages) == (50, 2)


def test_a_schedule_written_between_pages_moves_no_other(client: Client) -> None:
    client.schedules.put_many([ScheduleInput(name=f"n{i}", timing=every("1h"), target="hook") for i in range(6)])
    first = client.schedules.list(limit=3)
    client.schedules.put("n00", every("1h"), target="hook")
    client.schedules.delete("n1")
    assert [s.name for s in client.schedules.list(cursor=first.cursor)] == ["n3", "n4", "n5"]


def test_filters_of_schedules(client: Client) -> None:
    client.targets.put("other", "https://example.com")
    client.schedules.put("a_1", every("1h"), target="hook", labels={"plan": "pro", "zone": "eu"})
    client.schedules.put("a%2", every("1h"), target="other", labels={"plan": "pro"})
    client.schedules.put("b", every("1h"), target="hook", tenant="t", paused=True)

    def names(**filters: Any) -> list[str]:
        return [s.name for s in client.schedules.list(**filters)]

    assert names(tenant="t") == ["b"]
    assert names(target="other") == ["a%2"]
    assert names(labels={"plan": "pro"}) == ["a%2", "a_1"]
    assert names(labels={"plan": "pro", "zone": "eu"}) == ["a_1"]
    assert names(paused=True) == ["b"]
    assert names(paused=False) == ["a%2", "a_1"]
    assert names(prefix="a%") == ["a%2"]
    assert names(prefix="a_") == ["a_1"]
    assert names(target="nowhere") == []


def test_pages_of_runs_cover_each_once_newest_first(client: Client, rows: Rows) -> None:
    made = [client.schedules.put(f"s{i}", every("1h"), target="hook").id for i in range(4)]
    instants = [timedelta(minutes=m) for m in range(10, 17)]
    keys = {(rows.add(id, age, "succeeded"), id) for id in made for age in instants}
    found, pages = all_pages(lambda cursor: client.runs.list(limit=5, cursor=cursor))
    assert [(r.scheduled_at, r.schedule_id) for r in found] == sorted(keys, reverse=True)
    assert pages == 6


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_rare_run_is_found_over_bounded_pages(
    client: Client, rows: Rows, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(history_module, "_STRETCH", 5)
    monkeypatch.setattr(history_module, "_STRETCHES", 2)
    made = client.schedules.put("s", every("1h"), target="hook").id
    dead = {rows.add(made, timedelta(minutes=m), "dead") for m in (31, 77)}
    for m in range(10, 80):
        if m not in (31, 77):
            rows.add(made, timedelta(minutes=m), "succeeded")
    found, pages = all_pages(lambda cursor: client.runs.list(status="dead", limit=limit, cursor=cursor))
    assert {r.scheduled_at for r in found} == dead
    assert len(found) == 2
    assert pages > 2


def test_filters_of_runs(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    sql.execute(  # thirty hours ago may be the day before yesterday
        "select bucketd.make_days(bucketd.bucketd_now() - interval '2 days', bucketd.bucketd_now())"
    )
    first = client.schedules.put("a", every("1h"), target="hook").id
    other = client.schedules.put("b", every("1h"), target="hook", tenant="t").id
    old = rows.add(first, timedelta(hours=30), "succeeded")
    new = rows.add(first, HOUR, "dead")
    held = rows.add(first, timedelta(hours=29), "held")
    rows.add(other, HOUR, "retrying", attempt=1, tenant="t")

    def instants(**filters: Any) -> list[datetime]:
        return [r.scheduled_at for r in client.runs.list(**filters)]

    assert instants(name="a") == [new]
    assert instants(name="a", from_=datetime.now(UTC) - timedelta(hours=40)) == [new, held, old]
    assert instants(name="a", from_=old, to=new) == [held, old]
    assert instants(status="held") == [held]
    assert len(instants(status=["held", "retrying"])) == 2
    assert len(instants(tenant="t")) == 1
    assert instants(name="b", tenant="default") == []
    assert instants(target="nowhere") == []
    assert instants(status="dead", target="hook") == [new]


def test_pages_of_waiting_runs_cover_each_once(client: Client, rows: Rows) -> None:
    made = client.schedules.put("s", every("1h"), target="hook").id
    keys = [rows.add(made, timedelta(minutes=m), "held") for m in range(1, 12)]
    found, _ = all_pages(lambda cursor: client.runs.list(status="held", limit=4, cursor=cursor))
    assert [r.scheduled_at for r in found] == keys


def test_targets_are_listed_and_unused_ones_deleted(client: Client) -> None:
    for i in range(5):
        client.targets.put(f"t{i}", "https://example.com", headers={"authorization": "hush"})
    found, _ = all_pages(lambda cursor: client.targets.list(limit=2, cursor=cursor))
    assert [t.name for t in found] == ["hook", "t0", "t1", "t2", "t3", "t4"]
    assert found[1].headers == {"authorization": "hush"}
    assert "hush" not in repr(found)
    client.targets.delete("t0")
    with pytest.raises(NotFound):
        client.targets.get("t0")


# Each differs from its default.
TARGET: dict[str, Any] = {
    "headers": {"x-a": "b"}, "connect_timeout_s": 0.1, "timeout_s": 0.1, "max_attempts": 7, "retry_base_s": 0.1, "retry_cap_s": 0.0,
    "batch_max": 7, "batch_linger_ms": 7, "batch_by_tenant": True, "body": "raw", "max_running": 7, "rate_per_s": 0.1,
    "complete_within_s": 7, "dead_hook_url": "https://example.com/dead",
}  # fmt: skip


def test_each_field_of_a_target_is_read_back_and_written_once(client: Client, sql: psycopg.Connection[Any]) -> None:
    def row() -> object:
        return sql.execute("select xmin, xmax, ctid, revision from bucketd.targets where name = 't'").fetchone()

    assert set(TARGET) == set(inspect.signature(Targets.put).parameters) - {"self", "name", "url", "connection"}
    for field, value in TARGET.items():
        plain = client.targets.put("t", "https://example.com")
        assert getattr(plain, field) != value, field
        changed = client.targets.put("t", "https://example.com", **{field: value})
        assert (changed.created, changed.changed) == (False, True), field
        assert getattr(client.targets.get("t"), field) == value, field
        before = row()
        assert not client.targets.put("t", "https://example.com", **{field: value}).changed, field
        assert row() == before, field
    again = client.targets.put("t", "https://example.com")
    assert {field: getattr(again, field) for field in TARGET} == {field: getattr(plain, field) for field in TARGET}


def test_an_unchanged_target_is_not_written(client: Client, sql: psycopg.Connection[Any]) -> None:
    before = sql.execute("select xmin, xmax, revision from bucketd.targets").fetchone()
    again = client.targets.put("hook", "http://localhost:9/hook")
    assert (again.created, again.changed) == (False, False)
    assert sql.execute("select xmin, xmax, revision from bucketd.targets").fetchone() == before
    changed = client.targets.put("hook", "http://localhost:9/hook", timeout_s=0.1, retry_base_s=0.1)
    assert (changed.created, changed.changed, changed.revision) == (False, True, 2)
    assert not client.targets.put("hook", "http://localhost:9/hook", timeout_s=0.1, retry_base_s=0.1).changed
