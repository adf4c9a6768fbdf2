"""What waits is counted by tenant, target or label; what is dropped is just that; and a release comes to its end in steps."""

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import AsyncClient, Client, cron, every
from bucketd.client import Dropped, Release, Waiting
from bucketd.errors import InvalidInput, NotFound
from bucketd.store import holds, waiting
from bucketd.store.operation import drive
from tests.client.conftest import Rows

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def put(client: Client, name: str = "s", **fields: Any) -> UUID:
    return client.schedules.put(name, every("1m", phase=0), **{"target": "hook", **fields}).id


def behind(sql: psycopg.Connection[Any], schedule_id: UUID) -> None:
    """Its rows are background ones."""
    sql.execute("update bucketd.runs set background = true where schedule_id = %s", (schedule_id,))


def statuses(sql: psycopg.Connection[Any]) -> dict[tuple[str, str | None], int]:
    found = sql.execute("select status::text, reason, count(*) from bucketd.runs group by 1, 2").fetchall()
    return {(status, reason): number for status, reason, number in found}


def write_many(sql: psycopg.Connection[Any], schedule_id: UUID, number: int, status: str, age_s: int = 3_600) -> None:
    """Runs a second apart, from so long ago on; those that wake have one time for it."""
    sql.execute(
        "insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, wake_at)"
        " select date_trunc('second', bucketd.bucketd_now()) - make_interval(secs => %(age)s::float8) + n * interval '1 second', s.id,"
        " s.tenant, s.target_id, %(status)s::bucketd.run_status, 'settle',"
        " case when %(status)s = 'held' then timestamptz 'infinity' else date_trunc('hour', bucketd.bucketd_now()) - interval '1 hour' end"
        " from bucketd.schedules s, generate_series(1, %(number)s::int) n where s.id = %(id)s",
        {"id": schedule_id, "number": number, "status": status, "age": age_s},
    )


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "STEP_ROWS", 3)
    monkeypatch.setattr(waiting, "STEP_ROWS", 3)


# ------------------------------------------------------------------------------------------------------------------------- show


def test_what_waits_by_tenant_and_target(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    a, b, c = put(client, "a"), put(client, "b", tenant="t"), put(client, "c")
    rows.add(a, 3 * HOUR, "held")
    oldest = rows.add(a, timedelta(days=1), "held")
    rows.add(a, HOUR, "deferred")
    rows.add(a, -HOUR, "retrying", attempt=1)
    first = rows.add(b, 2 * HOUR, "waiting", tenant="t")
    rows.add(b, HOUR, "deferred", tenant="t")
    rows.add(b, 3 * HOUR, "succeeded", tenant="t")
    rows.add(b, 4 * HOUR, "running", claim=7, attempt=1, tenant="t")
    rows.add(b, -2 * HOUR, "skipped", tenant="t")
    rows.add(c, 5 * HOUR, "deferred", origin="backfill")
    behind(sql, c)
    found = client.backlog.show()
    assert found.groups == (
        Waiting("default", "hook", None, held=2, deferred=1, background=1, retrying=1, oldest=oldest),
        Waiting("t", "hook", None, deferred=2, oldest=first),
    )
    assert (found.total.runs, found.total.oldest, found.more, found.groups_left) == (7, oldest, False, 0)
    assert (found.backfills, found.owed, found.partial) == ((), None, False)
    assert client.backlog.show(tenant="t").groups == found.groups[1:]
    assert client.backlog.show(top=1).groups_left == 1
    with pytest.raises(NotFound, match="'nowhere'"):
        client.backlog.show(target="nowhere")


def test_what_waits_by_label(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    pro, free, none = (
        put(client, "a", labels={"plan": "pro", "eu": "1"}), put(client, "b", labels={"plan": "free"}), put(client, "c"),
    )  # fmt: skip
    for schedule, number in ((pro, 3), (free, 2), (none, 1)):
        write_many(sql, schedule, number, "deferred")
    assert {g.label: g.deferred for g in client.backlog.show(by="label=plan").groups} == {"pro": 3, "free": 2, None: 1}
    assert client.backlog.show(labels={"eu": "1"}).total.runs == 3
    sql.execute("delete from bucketd.schedules where name = 'a'")
    assert {g.label: g.deferred for g in client.backlog.show(by="label=plan").groups} == {"free": 2, None: 4}


def test_counting_stops_at_the_bound_with_the_oldest_day(client: Client, sql: psycopg.Connection[Any]) -> None:
    made = put(client)
    write_many(sql, made, 30, "held", 86_400)
    write_many(sql, made, 30, "deferred", 60)
    found = client.backlog.show(bound=20)
    assert (found.total.runs, found.total.held, found.more) == (20, 20, True)
    seen: list[tuple[int, int]] = []
    assert not client.backlog.show(progress=lambda *step: seen.append(step)).more
    assert seen[-1][0] == seen[-1][1] > 1


def test_what_open_backfills_may_still_make(client: Client) -> None:
    put(client, "a")
    client.schedules.put("b", cron("*/15 8-9 * * *", tz="Europe/Berlin"), target="hook")
    now = datetime.now(tz=client.status().now.tzinfo).replace(minute=0, second=0, microsecond=0)
    day = now.replace(hour=0) - timedelta(days=2)
    whole = client.backfill(day, day + timedelta(days=1), all=True)
    one = client.backfill(day, day + timedelta(days=1), name="a")
    found = client.backlog.show()
    assert {b.id: b.at_most for b in found.backfills} == {whole.id: 1_440 + 8, one.id: 1_440}
    client.backfills.cancel(whole.id)
    assert [b.id for b in client.backlog.show().backfills] == [one.id]


def test_what_owed_windows_may_still_make(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    until = rows.now().replace(minute=0, second=0, microsecond=0)
    put(client, "once")
    put(client, "all", misfire="catch_up", catch_up_cap=5)
    put(client, "none", misfire="skip")
    put(client, "paused", paused=True)
    sql.execute(
        "insert into bucketd.backfills (kind, partition_id, from_at, until_at)"
        " select 'settle', p, %s, %s from generate_series(0, 255) p",
        (until - 3 * HOUR, until),
    )
    found = client.backlog.show()
    assert found.owed
    assert (found.owed.windows, found.owed.until_at, found.owed.at_most) == (256, until, 1 + 5)
    assert found.backfills == ()


# ------------------------------------------------------------------------------------------------------------------------- drop


def scene(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> dict[str, tuple[UUID, datetime]]:
    """A run of each kind, two tenants, two targets."""
    client.targets.put("other", "http://localhost:9/other")
    a = put(client, "a", labels={"plan": "pro"})
    b, c = put(client, "b", tenant="t", target="other"), put(client, "c")
    found = {
        "held": (a, rows.add(a, 6 * HOUR, "held")),
        "deferred": (a, rows.add(a, 2 * HOUR, "deferred")),
        "retrying": (a, rows.add(a, HOUR, "retrying", attempt=1)),
        "running": (a, rows.add(a, 3 * HOUR, "running", claim=7, attempt=1)),
        "succeeded": (a, rows.add(a, 4 * HOUR, "succeeded", attempt=1)),
        "user": (a, rows.add(a, -HOUR, "skipped")),
        "not due": (a, rows.add(a, -2 * HOUR, "deferred")),
        "theirs": (b, rows.add(b, 5 * HOUR, "deferred", tenant="t")),
        "background": (c, rows.add(c, 5 * HOUR, "deferred", origin="catch_up")),
    }
    sql.execute("update bucketd.runs set wake_at = bucketd.bucketd_now() + interval '1 hour' where status = 'retrying'")
    sql.execute("update bucketd.runs r set target_id = s.target_id from bucketd.schedules s where s.id = r.schedule_id")
    behind(sql, c)
    return found


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("chosen", "dropped"),
    [
        ({"all": True}, {"held", "deferred", "retrying", "theirs", "background"}),
        ({"tenant": "default"}, {"held", "deferred", "retrying", "background"}),
        ({"tenant": "nobody"}, set()),
        ({"target": "other"}, {"theirs"}),
        ({"labels": {"plan": "pro"}}, {"held", "deferred", "retrying"}),
        ({"tenant": "t", "labels": {"plan": "pro"}}, set()),
        ({"all": True, "kind": "held"}, {"held"}),
        ({"all": True, "kind": ["deferred", "background"]}, {"deferred", "theirs", "background"}),
        ({"all": True, "kind": "retrying"}, {"retrying"}),
        ({"all": True, "kind": "background"}, {"background"}),
    ],
)
def test_a_drop_takes_what_was_chosen(
    client: Client, rows: Rows, sql: psycopg.Connection[Any], chosen: dict[str, Any], dropped: set[str], dry_run: bool
) -> None:
    runs = scene(client, rows, sql)
    before = {kind: rows.status(*key) for kind, key in runs.items()}
    done = client.backlog.drop(**chosen, dry_run=dry_run)
    after = {kind: rows.status(*key) for kind, key in runs.items()}
    assert done == Dropped(
        held=len(dropped & {"held"}), deferred=len(dropped & {"deferred", "theirs"}),
        background=len(dropped & {"background"}), retrying=len(dropped & {"retrying"}),
    )  # fmt: skip
    expected = dict.fromkeys(set() if dry_run else dropped, ("cancelled", "dropped"))
    assert after == {**before, **expected}


def test_only_what_was_scheduled_before(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    runs = scene(client, rows, sql)
    done = client.backlog.drop(all=True, before=runs["background"][1])
    assert done == Dropped(held=1)
    assert client.backlog.drop(all=True, before=runs["background"][1] + SECOND).background == 1


def test_a_drop_is_noted_with_its_count_and_actor(dsn: str, client: Client, sql: psycopg.Connection[Any]) -> None:
    write_many(sql, put(client), 7, "deferred")
    with Client(dsn, actor="ops") as ops:
        assert ops.backlog.drop(tenant="default", kind="held") == Dropped()
        assert ops.backlog.drop(tenant="default", dry_run=True).runs == 7
        assert ops.audit(kind="run").items == ()
        ops.backlog.drop(tenant="default", target="hook")
        (change,) = ops.audit(kind="run").items
    assert (change.actor, change.action, change.tenant, change.name) == (
        "ops",
        "drop",
        "default",
        "all kinds; target hook",
    )
    assert change.changes == {"dropped": [0, 7]}


def test_backfills_inside_the_filter_end_and_owed_windows_never(client: Client, sql: psycopg.Connection[Any]) -> None:
    put(client, "a", tenant="t", labels={"plan": "pro"})
    now = client.status().now
    theirs = client.backfill(now - HOUR, now - MINUTE, tenant="t", labels={"plan": "pro"})
    later = client.backfill(now - HOUR, now, tenant="t")
    wide = client.backfill(now - HOUR, now - MINUTE, all=True)
    sql.execute(
        "insert into bucketd.backfills (kind, partition_id, from_at, until_at) select 'settle', 3, now() - interval '1 h', now()"
    )
    assert client.backlog.drop(tenant="t", kind=["held", "retrying"]).backfills == ()
    assert client.backlog.drop(tenant="t", dry_run=True).backfills == (theirs.id, later.id)
    assert client.backlog.drop(tenant="t", before=now - MINUTE).backfills == (theirs.id,)
    assert client.backlog.drop(labels={"plan": "pro"}).backfills == ()
    assert client.backlog.drop(tenant="t").backfills == (later.id,)
    assert [b.id for b in client.backfills.list(open_only=True)] == [wide.id]
    assert client.backlog.drop(all=True).backfills == (wide.id,)
    assert client.backlog.show().owed


@pytest.mark.parametrize("status", ["held", "deferred", "retrying"])
def test_many_steps_drop_and_count_each_run_once(
    client: Client, sql: psycopg.Connection[Any], small_steps: None, status: str
) -> None:
    """Two schedules mixed in the walk; all that wake have one time for it, more of them than a step looks at."""
    gone, stays = put(client, "a", labels={"x": "1"}), put(client, "b")
    for age_s in (3_600, 3_000, 2_000):
        write_many(sql, stays, 11, status, age_s)
        write_many(sql, gone, 7, status, age_s)
    assert client.backlog.drop(labels={"x": "1"}, dry_run=True).runs == 21
    seen: list[int] = []
    assert client.backlog.drop(labels={"x": "1"}, progress=seen.append).runs == 21
    assert statuses(sql) == {("cancelled", "dropped"): 21, (status, None): 33}
    assert sql.execute("select distinct status from bucketd.runs where schedule_id = %s", (stays,)).fetchall() == [
        (status,)
    ]
    assert seen == sorted(seen)
    assert client.audit(kind="run").items[0].changes == {"dropped": [0, 21]}


def test_an_interrupted_drop_has_dropped_what_its_note_says(
    client: Client, sql: psycopg.Connection[Any], small_steps: None
) -> None:
    write_many(sql, put(client), 20, "held")

    def stop(done: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.backlog.drop(all=True, progress=stop)
    assert statuses(sql) == {("cancelled", "dropped"): 6, ("held", None): 14}
    assert client.audit(kind="run").items[0].changes == {"dropped": [0, 6]}
    assert client.backlog.drop(all=True) == Dropped(held=14)


def test_a_run_that_is_claimed_meanwhile_is_left_alone(
    client: Client, dsn: str, rows: Rows, sql: psycopg.Connection[Any]
) -> None:
    made = put(client)
    taken, left = rows.add(made, HOUR, "deferred"), rows.add(made, 2 * HOUR, "deferred")
    done: list[Dropped] = []
    with psycopg.connect(dsn) as runner:
        runner.execute(
            "update bucketd.runs set status = 'running', claim = 7, wake_at = null, attempt = 1 where scheduled_at = %s",
            (taken,),
        )
        dropper = threading.Thread(target=lambda: done.append(client.backlog.drop(all=True)))
        dropper.start()
        _until_one_waits(sql)
        runner.commit()
        dropper.join(20)
    assert done == [Dropped(deferred=1)]
    assert (rows.status(made, taken)[0], rows.status(made, left)[0]) == ("running", "cancelled")


def test_in_the_callers_transaction_nothing_stays_of_a_drop_that_is_rolled_back(
    client: Client, dsn: str, sql: psycopg.Connection[Any], small_steps: None
) -> None:
    write_many(sql, put(client), 10, "deferred")
    with psycopg.connect(dsn) as connection:
        connection.execute("set local enable_sort = off")
        assert client.backlog.drop(all=True, connection=connection).runs == 10
        settings = [
            connection.execute(f"show {name}".encode()).fetchone()
            for name in ("enable_sort", "enable_hashjoin", "enable_seqscan")
        ]
        connection.rollback()
    assert settings == [("off",), ("on",), ("on",)], "the caller's own plans are as before"
    assert statuses(sql) == {("deferred", None): 10}
    assert client.audit(kind="run").items == ()


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("all", {}),
        ("all", {"all": True, "tenant": "t"}),
        ("all", {"labels": {}}),
        ("kind", {"all": True, "kind": "running"}),
        ("before", {"all": True, "before": datetime(2026, 1, 1)}),
        ("tenant", {"tenant": ""}),
    ],
)
def test_a_bad_choice_drops_nothing(
    client: Client, sql: psycopg.Connection[Any], field: str, wanted: dict[str, Any]
) -> None:
    write_many(sql, put(client), 2, "deferred")
    with pytest.raises(InvalidInput, match="expected") as caught:
        client.backlog.drop(**wanted)
    assert caught.value.field == field
    assert statuses(sql) == {("deferred", None): 2}
    with pytest.raises(InvalidInput, match="label=KEY"):
        client.backlog.show(by="plan")


async def test_the_async_twin(client: Client, dsn: str, sql: psycopg.Connection[Any], small_steps: None) -> None:
    write_many(sql, put(client), 10, "held")
    async with AsyncClient(dsn) as aclient:
        waits = (await aclient.backlog.show()).total
        assert (waits.held, waits.runs) == (10, 10)
        assert waits.oldest
        assert await aclient.backlog.drop(all=True, before=waits.oldest + 4 * SECOND) == Dropped(held=4)
        await aclient.hold(all=True)
        seen: list[int] = []
        released = await aclient.release(all=True, progress=seen.append)
        assert (released, seen) == (Release(deferred=1, skipped=5), [3, 6, 6])
        with pytest.raises(NotFound):
            await aclient.release(all=True, dry_run=True)


# ---------------------------------------------------------------------------------------------------------------------- release


def started(sql: psycopg.Connection[Any]) -> Counter[UUID]:
    return Counter(
        row[0] for row in sql.execute("select schedule_id from bucketd.runs where status = 'deferred'").fetchall()
    )


def newest_started(sql: psycopg.Connection[Any]) -> bool:
    """Whether what was started is the newest row of its schedule."""
    found = sql.execute(
        "select bool_and(not exists (select from bucketd.runs n where n.schedule_id = r.schedule_id and n.scheduled_at > r.scheduled_at))"
        " from bucketd.runs r where status = 'deferred'"
    ).fetchone()
    return bool(found and found[0])


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5, 8, 100])
def test_run_once_is_once_a_schedule_wherever_a_release_stops(
    client: Client, dsn: str, sql: psycopg.Connection[Any], small_steps: None, stop_after: int
) -> None:
    """Steps of three rows cut through schedules of five; the rest is judged as the release would have judged it."""
    ids = [put(client, f"s{i}") for i in range(5)]
    for id in ids:
        write_many(sql, id, 5, "held")
    client.hold(all=True)
    steps = 0

    def stop(done: int) -> None:
        nonlocal steps
        steps += 1
        if steps == stop_after:
            raise KeyboardInterrupt

    try:
        client.release(all=True, progress=stop)
    except KeyboardInterrupt:
        assert client.holds() == [], "the hold goes first"
        assert statuses(sql).get(("held", None), 0) == 25 - 3 * stop_after
    with psycopg.connect(dsn) as connection:
        place: holds.Place | None = holds.START
        while place is not None:
            place = drive(holds.judge(place), connection).after
    assert started(sql) == Counter(ids)
    assert newest_started(sql)
    assert statuses(sql)["skipped", "misfire"] == 20


def test_a_release_can_be_counted_before(
    client: Client, rows: Rows, sql: psycopg.Connection[Any], small_steps: None
) -> None:
    once, all_, gone = put(client, "a"), put(client, "b", misfire="catch_up", tenant="t"), put(client, "c")
    for id in (once, all_, gone):
        write_many(sql, id, 8, "held")
    rows.add(once, 9 * HOUR, "held", attempt=2)
    rows.add(once, 8 * HOUR, "held", origin="trigger")
    sql.execute("delete from bucketd.schedules where name = 'c'")
    client.hold(all=True)
    client.hold(tenant="t")
    before = statuses(sql)
    counts = client.release(all=True, dry_run=True)
    assert counts == Release(deferred=2, retrying=1, skipped=7, cancelled=8)
    assert client.release(tenant="t", dry_run=True) == Release(), "all of it is held by the other one"
    assert (statuses(sql), len(client.holds())) == (before, 2)
    assert client.release(all=True) == counts
    assert client.release(tenant="t", dry_run=True) == Release(deferred=8, catch_up=8)
    with pytest.raises(NotFound, match="hold of everything"):
        client.release(all=True, dry_run=True)


def _until_one_waits(sql: psycopg.Connection[Any]) -> None:
    for _ in range(4_000):
        found = sql.execute(
            "select count(*), pg_sleep(0.005)::text from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchone()
        if found and found[0]:
            return
    raise AssertionError("nobody waits for a lock")
