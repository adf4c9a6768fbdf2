"""The audit log: every kind of change with its actor, whoever writes and however; and never a payload or a header's value."""

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from bucketd import AsyncClient, Client, ScheduleInput, cron, every
from bucketd.errors import InvalidInput
from bucketd.store.audit import Change
from bucketd.timing import EverySpec
from tests.client.conftest import Rows, count
from tests.client.test_async import aclient as aclient

SECRET = "s3cr3t-7f1c"
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


def deeds(client: Client, **filters: Any) -> list[tuple[str, str]]:
    """(kind, action), oldest first."""
    return [(change.kind, change.action) for change in reversed(client.audit(limit=1_000, **filters).items)]


def latest(client: Client, **filters: Any) -> Change:
    return client.audit(limit=1, **filters).items[0]


@pytest.fixture
def quiet(client: Client, sql: psycopg.Connection[Any]) -> Client:
    """The client, with an empty log."""
    sql.execute("truncate bucketd.audit restart identity")
    return client


def test_a_schedule_from_its_creation_to_its_end(quiet: Client) -> None:
    client = quiet
    made = client.schedules.put("a", every("1h", phase=0), target="hook", payload={"a": 1}, tenant="t")
    first = latest(client)
    assert (first.kind, first.action, first.tenant, first.name, first.object_id, first.revision, first.changes) == (
        "schedule", "create", "t", "a", str(made.id), 1, {},
    )  # fmt: skip
    assert abs((first.at - made.created_at).total_seconds()) < 5
    assert first.at.utcoffset() == timedelta(0)
    client.schedules.put(
        "a", cron("0 9 * * *"), target="hook", payload={"a": 2}, tenant="t", labels={"x": "y"}, timeout_s=9
    )
    edit = latest(client)
    assert (edit.action, edit.revision) == ("edit", 2)
    assert edit.changes["expression"] == ["1h", "0 9 * * *"]
    assert edit.changes["labels"] == [{}, {"x": "y"}]
    assert edit.changes["timeout_s"] == [None, 9]
    assert edit.changes["payload"] is None
    assert set(edit.changes) == {"expression", "labels", "timeout_s", "payload", "spec_id"}
    client.schedules.pause("a", tenant="t", reason="works", until=SOON)
    pause = latest(client)
    assert (pause.action, pause.changes["pause_reason"], pause.changes["paused"]) == (
        "pause",
        [None, "works"],
        [False, True],
    )
    assert datetime.fromisoformat(pause.changes["paused_until"][1]) == SOON
    client.schedules.pause("a", tenant="t", reason="more works", until=SOON)
    assert (latest(client).action, latest(client).changes) == ("edit", {"pause_reason": ["works", "more works"]})
    client.schedules.resume("a", tenant="t")
    assert (latest(client).action, latest(client).changes["paused"]) == ("resume", [True, False])
    client.schedules.delete("a", tenant="t")
    gone = latest(client)
    assert (gone.action, gone.tenant, gone.name, gone.object_id, gone.revision) == ("delete", "t", "a", str(made.id), 5)
    assert deeds(client) == [("schedule", one) for one in ("create", "edit", "pause", "edit", "resume", "delete")]


OTHER: dict[str, Any] = {
    "tenant": "t2", "name": "b", "phase": 7, "jitter_s": 9, "expression": "e", "timeout_s": 9, "max_attempts": 9,
    "retry_base_s": 9.0, "retry_cap_s": 9.0, "overlap": "allow",
    "misfire": "skip", "misfire_threshold_s": 9, "deadline_s": 9, "catch_up_window_s": 90, "catch_up_cap": 9,
    "labels": '{"a": "b"}', "paused": True, "pause_reason": "r", "paused_until": SOON, "starts_at": SOON, "ends_at": SOON,
    "max_runs": 9, "exclude_dates": [date(2027, 1, 1)], "calendars": ["bank"], "retimes": 1, "payload": '{"x": 1}',
}  # fmt: skip


def test_every_column_that_moves_the_revision_is_told(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    """So that one that is added is not forgotten here: the table is asked for its columns."""
    quiet.schedules.put("a", every("1h", phase=0), target="hook")
    quiet.targets.put("other", "http://localhost:9/")
    stamps = {
        *("id", "partition_id", "tenant_hash", "jitter_offset_s", "due_phase", "timing_version", "timing_from", "floor", "revision"),
        *("change_xid", "timing_xid", "created_at", "updated_at"),
    }
    columns = {
        row[0]
        for row in sql.execute(
            "select column_name from information_schema.columns where table_schema = 'bucketd' and table_name = 'schedules'"
        )
    } - stamps
    spec = sql.execute(
        "insert into bucketd.specs (kind, rule, every_s) values ('every', %s, 77) returning spec_id",
        (EverySpec(77).rule(),),
    ).fetchone()
    target = sql.execute("select target_id from bucketd.targets where name = 'other'").fetchone()
    assert spec
    assert target
    values = OTHER | {"spec_id": spec[0], "target_id": target[0]}
    assert columns == set(values)
    for column in sorted(columns):
        with sql.transaction(force_rollback=True):
            sql.execute(f"update bucketd.schedules set {column} = %s".encode(), (values[column],))
            (change,) = sql.execute("select changes from bucketd.audit order by audit_id desc limit 1").fetchone() or (
                {},
            )
            assert set(change) == {column}, column


def test_a_retime_is_one(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    quiet.schedules.put("a", every("1h", phase=0), target="hook")
    sql.execute("update bucketd.schedules set retimes = retimes + 1")
    assert latest(quiet).action == "retime"


def test_targets_tenants_holds_calendars_and_backfills(quiet: Client, rows: Rows) -> None:
    client = quiet
    client.targets.put("api", "https://example.com/", headers={"Authorization": "a"})
    client.targets.put("api", "https://example.com/", headers={"Authorization": "b"}, timeout_s=9)
    assert latest(client).changes == {"headers": None, "timeout_s": [30, 9]}
    assert latest(client).revision == 2
    client.tenants.put("t", max_running=5)
    client.tenants.put("t", max_running=5)
    client.tenants.put("t", max_running=6)
    cap = latest(client)
    assert (cap.kind, cap.tenant, cap.name, cap.object_id) == ("tenant", "t", "t", "t")
    assert cap.changes == {"max_running": [5, 6]}
    client.tenants.delete("t")
    client.hold(target="api", reason="works")
    hold = latest(client)
    assert (hold.kind, hold.action, hold.name) == ("hold", "create", "api"), "of which target"
    client.hold(target="api", reason="more")
    assert latest(client).changes == {"reason": ["works", "more"]}
    client.release(target="api")
    client.hold(tenant="t")
    assert (latest(client).tenant, latest(client).name) == ("t", "tenant")
    client.hold(all=True)
    assert (latest(client).tenant, latest(client).name) == (None, "all")
    client.targets.delete("api")
    client.calendars.put("bank", [date(2027, 1, 1)])
    client.calendars.put("bank", [])
    assert latest(client).changes == {"dates": [["2027-01-01"], []]}
    client.calendars.delete("bank")
    client.schedules.put("a", every("1h", phase=0), target="hook")
    asked = client.backfill(rows.now() - timedelta(hours=2), rows.now() - timedelta(hours=1), name="a")
    assert (latest(client).tenant, latest(client).name, latest(client).object_id) == ("default", "a", str(asked.id))
    client.backfills.cancel(asked.id)
    assert deeds(client) == [
        ("target", "create"), ("target", "edit"), ("tenant", "create"), ("tenant", "edit"), ("tenant", "delete"),
        ("hold", "create"), ("hold", "edit"), ("hold", "delete"),
        ("hold", "create"), ("hold", "create"), ("target", "delete"), ("calendar", "create"), ("calendar", "edit"),
        ("calendar", "delete"), ("schedule", "create"), ("backfill", "create"), ("backfill", "cancel"),
    ]  # fmt: skip


def test_runs_that_were_started_skipped_or_cancelled_by_hand(quiet: Client) -> None:
    quiet.schedules.put("a", every("1h", phase=0), target="hook", tenant="t")
    run = quiet.schedules.trigger("a", tenant="t")
    assert (latest(quiet).action, latest(quiet).object_id) == ("trigger", run)
    quiet.runs.cancel(run)
    quiet.schedules.skip_next("a", tenant="t")
    assert deeds(quiet, kind="run") == [("run", "trigger"), ("run", "cancel"), ("run", "skip")]
    assert {(one.tenant, one.name) for one in quiet.audit(kind="run")} == {("t", "a")}


def test_dead_letters_that_were_dropped_by_hand(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, died_at)"
        " select gen_random_uuid(), now(), 't', 'a', target_id, 'null', 'http', 5, now() from bucketd.targets"
    )
    assert quiet.dead.discard(tenant="t") == 1
    assert (latest(quiet).action, latest(quiet).tenant, latest(quiet).object_id) == ("discard", "t", "1 dead letters")


def test_a_calendars_edit_tells_of_the_schedules_that_follow(quiet: Client) -> None:
    quiet.calendars.put("bank", [])
    quiet.schedules.put("a", every("1h", phase=0), target="hook", calendars=["bank"])
    with Client(quiet._session._where.settings().dsn.get_secret_value(), actor="alice") as alice:
        alice.calendars.put("bank", [date(2027, 1, 1)])
    one, other = quiet.audit(limit=2)
    assert {(one.kind, one.action), (other.kind, other.action)} == {("schedule", "edit"), ("calendar", "edit")}
    assert {one.actor, other.actor} == {"alice"}


# Who


def test_the_actor_of_a_client(quiet: Client, dsn: str) -> None:
    with Client(dsn, actor="alice") as alice:
        alice.schedules.put("a", every("1h"), target="hook")
        alice.schedules.put_many([ScheduleInput(name="b", timing=every("1h"), target="hook")])
        alice.hold(all=True)
        alice.schedules.trigger("a")
    quiet.schedules.pause("a")
    assert [one.actor for one in quiet.audit()] == ["bucketd", "alice", "alice", "alice", "alice"]
    assert deeds(quiet, actor="bucketd") == [("schedule", "pause")]
    for bad in ("", "x" * 256, "a\nb"):
        with pytest.raises(InvalidInput):
            Client(dsn, actor=bad)


def test_the_actor_of_the_environment(quiet: Client, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_DSN", dsn)
    monkeypatch.setenv("BUCKETD_ACTOR", "bob")
    with Client() as bob:
        bob.schedules.put("a", every("1h"), target="hook")
        bob.schedules.pause("a")
    with Client(actor="carol") as carol:
        carol.schedules.resume("a")
    assert [one.actor for one in quiet.audit()] == ["carol", "bob", "bob"], "from the first call on"


def test_the_callers_connection(quiet: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as connection, Client(dsn, actor="alice") as alice:
        alice.on(connection).schedules.put("a", every("1h"), target="hook")
        connection.commit()
        quiet.on(connection).schedules.pause("a")
        connection.commit()
        alice.schedules.resume("a", connection=connection)
        connection.rollback()
    assert [(one.actor, one.action) for one in quiet.audit()] == [("bucketd", "pause"), ("alice", "create")]
    with Client(dsn, actor="alice") as alice:
        alice.on(sql).schedules.pause("a", reason="x")
    sql.execute("update bucketd.schedules set timeout_s = 5")
    assert latest(quiet).actor == "bucketd", "an autocommit connection does not stay alice's"


def test_raw_sql_is_the_database_users(quiet: Client, sql: psycopg.Connection[Any], dsn: str) -> None:
    quiet.schedules.put("a", every("1h"), target="hook")
    role = f"clerk_{uuid4().hex[:8]}"
    sql.execute(f"create role {role} login password 'x'".encode())
    try:
        sql.execute(f"grant usage on schema bucketd to {role}".encode())
        sql.execute(f"grant all on all tables in schema bucketd to {role}".encode())
        info = psycopg.conninfo.conninfo_to_dict(dsn)
        with psycopg.connect(**{**info, "user": role, "password": "x"}) as clerk:  # type: ignore[arg-type]
            clerk.execute("update bucketd.schedules set timeout_s = 7")
            clerk.execute("select set_config('bucketd.actor', 'erp', true)")
            clerk.execute("update bucketd.schedules set timeout_s = 8")
    finally:
        sql.execute(f"drop owned by {role}".encode())
        sql.execute(f"drop role {role}".encode())
    assert [one.actor for one in quiet.audit()] == ["erp", role, "bucketd"]


def test_clients_that_share_pooled_connections_keep_their_names(quiet: Client, dsn: str) -> None:
    """The name belongs to the transaction: what comes next on that connection is not alice's."""
    with Client(dsn, actor="alice") as alice:
        alice.schedules.put("a", every("1h"), target="hook")
        connection = alice._session._connections
        with connection.use() as (raw, _):
            raw.execute("update bucketd.schedules set timeout_s = 5")
    assert [one.actor for one in quiet.audit()] == ["bucketd", "alice"]


# What is not told


@pytest.mark.parametrize("nul", ["", "\0"])
def test_no_payload_and_no_header_is_told(quiet: Client, sql: psycopg.Connection[Any], nul: str) -> None:
    """Not even one that Postgres's jsonb refuses."""
    client = quiet
    for n in range(3):
        payload = {"key": f"{SECRET}{n}", "nul": nul, "big": [1e308, 10**400]}
        client.schedules.put("a", every("1h"), target="hook", payload=payload)
        client.targets.put("t", "https://example.com/", headers={"Authorization": f"Bearer {SECRET}{n}"})
        client.schedules.put_many([ScheduleInput(name="b", timing=every("1h"), target="hook", payload=payload)])
        client.schedules.pause("a")
        client.schedules.resume("a")
        client.schedules.trigger("a")
    client.schedules.delete("a")
    client.targets.delete("t")
    text = sql.execute("select string_agg(a::text, E'\\n') from bucketd.audit a").fetchone()
    assert text
    assert len(text[0].splitlines()) > 15
    assert SECRET not in text[0]
    assert "Authorization" not in text[0]
    assert client.schedules.get("b").payload == payload


def test_a_payload_that_is_only_written_otherwise_is_a_change(quiet: Client) -> None:
    quiet.schedules.put("a", every("1h", phase=0), target="hook", payload={"a": 1, "b": 2})
    quiet.schedules.put("a", every("1h", phase=0), target="hook", payload={"b": 2, "a": 1})
    assert latest(quiet).changes == {"payload": None}


# What is no change


def test_what_changes_nothing_leaves_no_entry(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    client = quiet
    rows = [ScheduleInput(name=f"s{i}", timing=every("1h"), target="hook") for i in range(20)]
    client.schedules.put_many(rows)
    client.schedules.put("a", every("1h"), target="hook", payload={"a": 1})
    client.calendars.put("bank", [date(2027, 1, 1)])
    client.hold(all=True, reason="r")
    before = count(sql, "audit")
    client.schedules.put_many(rows)
    client.schedules.put("a", every("1h"), target="hook", payload={"a": 1})
    client.schedules.resume("a")
    client.calendars.put("bank", [date(2027, 1, 1)])
    client.targets.put("hook", "http://localhost:9/hook")
    client.hold(all=True, reason="r")
    client.schedules.put_many(rows, dry_run=True, prune=True)
    sql.execute("update bucketd.schedules set timeout_s = timeout_s, payload = payload")
    sql.execute("update bucketd.schedules set floor = floor + interval '1 hour'")
    assert count(sql, "audit") == before, "settling raises floors: that is nobody's change"


def test_a_change_that_is_rolled_back_leaves_no_entry(quiet: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as connection:
        quiet.schedules.put("a", every("1h"), target="hook", connection=connection)
        connection.rollback()
    assert count(sql, "audit") == 0


# Many at once


def test_ten_thousand_are_ten_thousand_entries(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    """Also by a session that edited a single one before: plans for few rows must not stay for many."""
    client = quiet
    rows = [ScheduleInput(name=f"s{i}", timing=every("1h"), target="hook") for i in range(10_000)]
    client.schedules.put_many(rows)
    assert sql.execute("select action, count(*) from bucketd.audit group by 1").fetchall() == [("create", 10_000)]
    for n in range(8):
        client.schedules.put("s0", every("1h"), target="hook", timeout_s=n + 1)
    statement = sql.execute("select count(*) from bucketd.audit").fetchone()
    edited = [ScheduleInput(name=f"s{i}", timing=every("1h"), target="hook", payload=i) for i in range(10_000)]
    assert {result.status for result in client.schedules.put_many(edited)} == {"updated"}
    assert statement
    assert count(sql, "audit") == statement[0] + 10_000
    assert client.schedules.put_many([], prune=True) == []
    sql.execute("delete from bucketd.schedules")
    assert len(deeds(client, name="s9999")) == 3


def test_copy_is_in_it(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    quiet.schedules.put("a", every("1h", phase=0), target="hook")
    found = sql.execute("select spec_id, target_id from bucketd.schedules").fetchone()
    assert found
    with sql.cursor() as cursor, cursor.copy(b"copy bucketd.schedules (name, spec_id, target_id) from stdin") as copy:
        for n in range(500):
            copy.write_row((f"copied-{n}", *found))
    assert deeds(quiet, actor="bucketd", kind="schedule") == [("schedule", "create")] * 501


# Reading it


def test_filters_and_pages(quiet: Client, sql: psycopg.Connection[Any]) -> None:
    client = quiet
    for n in range(7):
        client.schedules.put(f"s{n % 2}", every("1h"), target="hook", timeout_s=n + 1, tenant="t" if n % 3 else "u")
    seen, cursor = [], None
    while True:
        page = client.audit(limit=3, cursor=cursor)
        seen += [change.id for change in page]
        if (cursor := page.cursor) is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 7 == count(sql, "audit")
    assert {change.name for change in client.audit(name="s1")} == {"s1"}
    assert {change.tenant for change in client.audit(tenant="u")} == {"u"}
    middle = client.audit().items[3].at
    assert len(client.audit(from_=middle)) + len(client.audit(to=middle)) == 7
    assert len(client.audit(from_=middle)) == 4
    for bad in (
        {"kind": "cow"},
        {"limit": 0},
        {"limit": 1_001},
        {"cursor": "x"},
        {"from_": datetime(2027, 1, 1)},
        {"name": ""},
    ):
        with pytest.raises(InvalidInput):
            client.audit(**bad)


async def test_the_async_twin(aclient: AsyncClient, dsn: str) -> None:
    async with AsyncClient(dsn, actor="alice") as alice:
        await alice.schedules.put("a", every("1h"), target="hook")
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as raw:
            await alice.on(raw).schedules.pause("a")
    page = await aclient.audit(kind="schedule")
    assert [(one.actor, one.action) for one in page] == [("alice", "pause"), ("alice", "create")]


def test_many_writers_at_once_each_under_its_name(quiet: Client, dsn: str) -> None:
    def work(name: str) -> None:
        with Client(dsn, actor=name) as own:
            for n in range(10):
                own.schedules.put(f"{name}-{n}", every("1h"), target="hook")

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = quiet.audit(limit=1_000).items
    assert len(found) == 40
    assert all(change.name.startswith(f"{change.actor}-") for change in found)
