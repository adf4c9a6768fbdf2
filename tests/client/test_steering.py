"""Pausing, deleting, skipping, triggering, cancelling; holds and their release; backfills."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import Client, cron, every
from bucketd.client import Release, RunStatus
from bucketd.errors import Conflict, InvalidInput, NotFound
from bucketd.store.model import run_id
from tests.client.conftest import Rows, bury

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def put(client: Client, name: str = "s", **fields: Any) -> UUID:
    return client.schedules.put(name, every("1m", phase=0), target="hook", **fields).id


def test_pause_and_resume_are_idempotent_and_resume_raises_the_floor(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    put(client)
    assert (client.schedules.pause("s").changed, client.schedules.pause("s").changed) == (True, False)
    before = sql.execute("select floor from bucketd.schedules").fetchone()
    assert (client.schedules.resume("s").changed, client.schedules.resume("s").changed) == (True, False)
    after = sql.execute("select floor from bucketd.schedules").fetchone()
    assert before
    assert after
    assert after[0] > before[0]
    with pytest.raises(NotFound):
        client.schedules.pause("nobody")


def test_delete_cancels_what_waits_and_what_runs(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    gone, stays = put(client), put(client, "other")
    waiting = rows.add(gone, HOUR, "retrying", attempt=1)
    held = rows.add(gone, 2 * HOUR, "held")
    running = rows.add(gone, 3 * HOUR, "running", attempt=1, claim=7)
    done = rows.add(gone, 4 * HOUR, "succeeded", attempt=1)
    sql.execute(
        "insert into bucketd.claims values (7, gen_random_uuid(), %s, bucketd.bucketd_now())", ([running, rows.now()],)
    )
    others = rows.add(stays, 3 * HOUR, "running", attempt=1, claim=7), rows.add(stays, HOUR, "deferred")
    client.schedules.delete("s")
    assert [rows.status(gone, at) for at in (waiting, held, running)] == [("cancelled", "deleted")] * 3
    assert rows.status(gone, done) == ("succeeded", None)
    assert [rows.status(stays, at)[0] for at in others] == ["running", "deferred"]
    with pytest.raises(NotFound):
        client.schedules.delete("s")


def test_a_target_in_use_is_not_deleted(client: Client, rows: Rows) -> None:
    made = put(client)
    with pytest.raises(Conflict, match="used by schedules"):
        client.targets.delete("hook")
    client.schedules.delete("s")
    rows.add(made, HOUR, "retrying", attempt=1)
    with pytest.raises(Conflict, match="unfinished runs"):
        client.targets.delete("hook")


def test_skip_next_takes_one_occurrence_after_the_other(client: Client, sql: psycopg.Connection[Any]) -> None:
    client.schedules.put("s", every("1h"), target="hook")
    ahead = client.schedules.next("s", 4)
    assert [client.schedules.skip_next("s"), client.schedules.skip_next("s")] == ahead[:2]
    assert client.schedules.next("s", 2) == ahead[2:]
    assert sql.execute("select distinct status::text, reason, wake_at from bucketd.runs").fetchall() == [
        ("skipped", "user", None)
    ]


def test_skip_next_makes_the_days_up_to_an_occurrence_and_leaves_no_hole(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    day = (datetime.now(UTC) + timedelta(days=40)).day
    client.schedules.put(
        "monthly", cron(f"0 12 {min(day, 28)} * *"), target="hook", starts_at=datetime.now(UTC) + timedelta(days=20)
    )
    at = client.schedules.skip_next("monthly")
    found = sql.execute(
        "select count(*), days_through, (days_through - days_from) from bucketd.cluster, pg_inherits"
        " where inhparent = 'bucketd.runs'::regclass group by 2, 3"
    ).fetchone()
    assert found
    assert found[0] == found[2].days
    assert found[1] > at


def test_skip_next_refuses_what_lies_too_far_ahead(client: Client) -> None:
    client.schedules.put("s", every("1h"), target="hook", starts_at=datetime.now(UTC) + timedelta(days=300))
    with pytest.raises(Conflict, match="more than 62 days"):
        client.schedules.skip_next("s")


def test_next_knows_start_end_and_jitter(client: Client) -> None:
    start = (datetime.now(UTC) + timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    client.schedules.put("s", cron("0 * * * *"), target="hook", starts_at=start, ends_at=start + 3 * HOUR)
    assert client.schedules.next("s", 9) == [start, start + HOUR, start + 2 * HOUR]
    client.schedules.pause("s")
    assert client.schedules.next("s", 1) == [start]


def test_a_trigger_is_a_run_off_the_whole_second_even_of_a_paused_schedule(client: Client) -> None:
    put(client, paused=True)
    ids = {client.schedules.trigger("s") for _ in range(5)}
    assert len(ids) == 5
    run = client.runs.get(ids.pop())
    assert (run.status, run.origin, run.attempt, run.name) == (RunStatus.DEFERRED, "trigger", 0, "s")
    assert run.scheduled_at.microsecond != 0
    assert run.wake_at == run.scheduled_at
    with pytest.raises(NotFound):
        client.schedules.trigger("nobody")


def test_a_trigger_makes_a_missing_today(client: Client, sql: psycopg.Connection[Any]) -> None:
    put(client)
    sql.execute("update bucketd.cluster set clock_offset = interval '12 days'")
    assert client.runs.get(client.schedules.trigger("s")).origin == "trigger"


def test_cancel_ends_a_run_and_fences_its_runner(client: Client, rows: Rows) -> None:
    made = put(client)
    running = rows.add(made, HOUR, "running", attempt=1, claim=7)
    run = client.runs.cancel(run_id(made, running))
    assert (run.status, run.reason, run.wake_at) == (RunStatus.CANCELLED, "cancelled", None)
    with pytest.raises(Conflict, match="is cancelled already"):
        client.runs.cancel(run.id)
    with pytest.raises(NotFound):
        client.runs.cancel(run_id(made, running - HOUR))


def hold_all_kinds(client: Client, rows: Rows, policy: str, **fields: Any) -> tuple[UUID, dict[str, datetime]]:
    made = put(client, policy, misfire=policy, misfire_threshold_s=60, **fields)
    return made, {
        "fresh": rows.add(made, timedelta(seconds=5), "held"),
        "newest": rows.add(made, 5 * MINUTE, "held"),
        "older": rows.add(made, 6 * MINUTE, "held", missed=3),
        "oldest": rows.add(made, 2 * HOUR, "held"),
        "started": rows.add(made, 3 * HOUR, "held", attempt=2),
        "asked": rows.add(made, 4 * HOUR, "held", origin="trigger"),
        "backfilled": rows.add(made, 5 * HOUR, "held", origin="backfill"),
    }


@pytest.mark.parametrize(
    ("policy", "fields", "runs"),
    [
        ("run_once", {}, {"fresh", "newest", "asked", "backfilled"}),
        ("skip", {}, {"fresh", "asked", "backfilled"}),
        ("catch_up", {}, {"fresh", "newest", "older", "oldest", "asked", "backfilled"}),
        ("catch_up", {"deadline_s": 3600}, {"fresh", "newest", "older", "asked", "backfilled"}),
        ("run_once", {"deadline_s": 60}, {"fresh", "asked", "backfilled"}),
    ],
)
def test_a_release_judges_by_the_misfire_policy(
    client: Client, rows: Rows, policy: str, fields: dict[str, Any], runs: set[str]
) -> None:
    client.hold(tenant="default", reason="incident 7")
    made, instants = hold_all_kinds(client, rows, policy, **fields)
    released = client.release(tenant="default")
    got = {kind: rows.status(made, at) for kind, at in instants.items()}
    assert {kind for kind, (status, _) in got.items() if status == "deferred"} == runs
    assert got["started"][0] == "retrying"
    behind = len(runs & {"newest", "older", "oldest"}) if policy == "catch_up" else 0
    assert released == Release(deferred=len(runs), retrying=1, skipped=6 - len(runs), catch_up=behind)
    past = fields.get("deadline_s")
    late = {"newest": 300, "older": 360, "oldest": 7200}
    for kind in set(late) - runs:
        assert got[kind] == ("skipped", "past_deadline" if past and late[kind] > past else "misfire")
    run = client.runs.get(run_id(made, instants["older"]))
    assert (run.missed, run.background) == (3, policy == "catch_up")


def test_a_release_leaves_what_another_hold_covers(client: Client, rows: Rows) -> None:
    client.targets.put("other", "https://example.com")
    a, b = put(client, "a"), put(client, "b", tenant="t")
    client.hold(all=True)
    client.hold(tenant="t")
    in_a, in_b = rows.add(a, HOUR, "held", attempt=1), rows.add(b, HOUR, "held", attempt=1, tenant="t")
    assert client.release(all=True) == Release(retrying=1)
    assert (rows.status(a, in_a)[0], rows.status(b, in_b)[0]) == ("retrying", "held")
    assert client.release(tenant="t") == Release(retrying=1)
    with pytest.raises(NotFound, match="hold of tenant"):
        client.release(tenant="t")


def test_held_runs_of_a_deleted_schedule_are_cancelled(
    client: Client, rows: Rows, sql: psycopg.Connection[Any]
) -> None:
    made = put(client)
    client.hold(target="hook")
    at = rows.add(made, HOUR, "held")
    sql.execute("delete from bucketd.schedules")
    assert client.release(target="hook") == Release(cancelled=1)
    assert rows.status(made, at) == ("cancelled", "deleted")


def test_holds_are_listed_and_idempotent(client: Client) -> None:
    first = client.hold(target="hook", reason="a")
    again = client.hold(target="hook", reason="b")
    client.hold(all=True)
    assert again.id == first.id
    assert [(h.scope, h.tenant, h.target, h.reason) for h in client.holds()] == [
        ("target", None, "hook", "b"),
        ("all", None, None, ""),
    ]
    with pytest.raises(NotFound):
        client.hold(target="nowhere")


def test_a_backfill_is_asked_for_with_its_days(client: Client, sql: psycopg.Connection[Any]) -> None:
    put(client, labels={"plan": "pro"})
    now = datetime.now(UTC)
    asked = client.backfill(now - timedelta(days=9), now - timedelta(days=8), name="s")
    assert (asked.tenant, asked.name, asked.target, asked.finished_at) == ("default", "s", None, None)
    found = sql.execute(
        "select count(*), days_from, (days_through - days_from) from bucketd.cluster, pg_inherits"
        " where inhparent = 'bucketd.runs'::regclass group by 2, 3"
    ).fetchone()
    assert found
    assert found[0] == found[2].days
    assert found[1] <= asked.from_at
    client.backfill(now - HOUR, now - MINUTE, target="hook", labels={"plan": "pro"})
    assert [b.labels for b in client.backfills.list()] == [{"plan": "pro"}, {}]
    with pytest.raises(NotFound):
        client.backfill(now - HOUR, now - MINUTE, name="nobody")


def test_a_backfill_is_cancelled_once(client: Client) -> None:
    now = datetime.now(UTC)
    asked = client.backfill(now - HOUR, now - MINUTE, all=True)
    assert client.backfills.cancel(asked.id).cancelled
    assert client.backfills.list(open_only=True).items == ()
    with pytest.raises(Conflict, match="cancelled already"):
        client.backfills.cancel(asked.id)
    with pytest.raises(NotFound):
        client.backfills.get(asked.id + 1)


def test_status_counts(client: Client, rows: Rows, sql: psycopg.Connection[Any]) -> None:
    made = put(client)
    put(client, "paused", paused=True)
    rows.add(made, timedelta(seconds=30), "succeeded", attempt=1)
    rows.add(made, HOUR, "held")
    rows.add(made, 2 * HOUR, "retrying", attempt=1)
    client.hold(all=True)
    bury(sql, made, rows.now())
    sql.execute(
        "insert into bucketd.runners (runner_id, host, pid, message_version, started_at, heartbeat_at)"
        " select gen_random_uuid(), 'h', 1, 1, now(), bucketd.bucketd_now() - n * interval '25 seconds' from generate_series(0, 2) n"
    )
    status = client.status()
    assert (status.schedules, status.paused, status.runners, status.holds, status.dead_letters) == (2, 1, 2, 1, 1)
    assert status.unfinished == {"held": 1, "retrying": 1}
    assert (status.due, status.last_minute) == (1, {"succeeded": 1})
    assert (status.owners, status.unowned_partitions) == (0, 256)
    assert status.settled_lag_s > 0


def test_a_backfill_ends_in_the_past(client: Client) -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidInput, match="fires by itself"):
        client.backfill(now - HOUR, now + HOUR, all=True)
