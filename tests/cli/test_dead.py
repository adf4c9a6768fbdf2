"""`bucketd dead`: looking at dead letters, and deciding about one or very many."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bucketd.store.config import Settings
from bucketd.store.dead_letters import STRETCH
from tests.cli.conftest import Cli
from tests.support.processes import Processes
from tests.support.waiting import wait_until

FAILURES = (
    '[{"attempt": 1, "began": "2026-11-30T09:00:00.000000Z", "at": "2026-11-30T09:00:02.500000Z", "status": 503,'
    ' "error": "HTTP 503 \\u001b[31m busy"}, {"attempt": 3, "at": "2026-11-30T09:10:00.000000Z", "status": null, "error": "no answer"}]'
)


@pytest.fixture
def sql(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(settings.dsn.get_secret_value(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def buried(cli: Cli, sql: psycopg.Connection[Any]) -> Cli:
    """A schedule, and of it dead runs with their letters: STRETCH and two more."""
    cli.done("target", "put", "hook", "http://127.0.0.1:9/")
    cli.done("schedule", "put", "s", "--target", "hook", "--every", "1m", "--paused", "--payload", '"old"')
    sql.execute(
        "with clock as materialized (select bucketd.bucketd_now() as now), died as ("
        "  insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, attempt, finished_at)"
        "  select now - n * interval '1 second', s.id, s.tenant, s.target_id, 'dead', 'fire', 3, now"
        "  from clock, bucketd.schedules s, generate_series(1, %s) n returning *)"
        " insert into bucketd.dead_letters"
        "  (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, failures, died_at)"
        " select d.schedule_id, d.scheduled_at, d.tenant, s.name, d.target_id, s.payload, 'attempts', 3, %s::jsonb,"
        "   d.finished_at - interval '2 hours' from died d join bucketd.schedules s on s.id = d.schedule_id",
        (STRETCH + 2, FAILURES),
    )
    return cli


def test_a_letter_shows_its_attempts_and_what_has_changed_since(buried: Cli) -> None:
    (letter,) = buried.done("dead", "list", "-n", "1", "--json").lines
    listed = buried.done("dead", "list", "-n", "2").out
    assert "2h00m" in listed
    assert "no answer" in listed
    shown = buried.done("dead", "show", str(letter["id"]))
    table = [line.split() for line in shown.out.splitlines() if line.lstrip()[:1] in "123" and line.strip()]
    assert table[0][:5] == ["1", "2026-11-30T09:00:00.000000Z", "2.5s", "503", "HTTP"]
    assert " ".join(table[1]) == "2 - - - no end is known: its runner was lost"
    assert " ".join(table[2]) == "3 - - - no answer"
    assert "\x1b" not in shown.out
    assert shown.err == ""
    buried.done("schedule", "put", "s", "--target", "hook", "--every", "1m", "--paused", "--payload", '"new"')
    assert "another payload by now: a replay uses the schedule's" in buried.done("dead", "show", str(letter["id"])).err

    run = buried.done("dead", "run-again", str(letter["id"]), "--discard")
    assert buried.done("runs", "show", run.out.strip(), "--json").json["origin"] == "trigger"
    assert "payload and target as the schedule has them now" in run.err
    assert buried("dead", "show", str(letter["id"])).code == 3
    buried.done("schedule", "delete", "s", "--yes")
    (letter,) = buried.done("dead", "list", "-n", "1", "--json").lines
    assert "only discarded" in buried.done("dead", "show", str(letter["id"])).err


def test_many_are_counted_first_and_go_at_a_rate(buried: Cli, sql: psycopg.Connection[Any]) -> None:
    for arguments, reason in (
        (("--reason", "attempts"), f"Replay {STRETCH + 2:,} dead letters?"),
        (("--reason", "attempts", "--rate", "100/m"), f"Replay {STRETCH + 2:,} dead letters over 50m01s?"),
        (("--all", "--rate", "fast"), "expected a rate such as 50/s"),
        (("--all", "--rate", "0/s"), "expected a rate such as 50/s"),
        (("--all", "--name", "s"), "expected ids, or --all"),
    ):
        result = buried("dead", "replay", *arguments)
        assert result.code == 2
        assert reason in result.err
    assert buried.done("dead", "replay", "--all", "--dry-run").out == f"would replay: {STRETCH + 2:,}\n"
    assert buried.done("dead", "discard", "--to", "-3h", "--yes").out == "discarded: 0\n"
    assert buried.done("dead", "discard", "--all", "--dry-run", "--json").json["discarded"] == STRETCH + 2
    sql.execute(
        "update bucketd.runs set status = 'succeeded' where scheduled_at = (select max(scheduled_at) from bucketd.runs)"
    )
    done = buried.done("dead", "replay", "--from", "-3h", "--label", "a=b", "--rate", "10/s", "--yes")
    assert done.out == "replayed: 0\n"
    done = buried.done("dead", "replay", "--from", "-3h", "--rate", "10/s", "--yes")
    assert done.out.startswith(f"replayed: {STRETCH + 1:,}; the last starts about 20")
    assert "left as they were: 1: " in done.out
    assert "(its run is succeeded)" in done.out
    spread = sql.execute(
        "select extract(epoch from max(wake_at) - min(wake_at))::float8 from bucketd.runs where reason = 'replayed'"
    ).fetchone()
    assert spread
    assert spread[0] >= STRETCH / 10 - 0.01


def test_an_interrupted_replay_says_how_far_it_came(
    buried: Cli, sql: psycopg.Connection[Any], processes: Processes
) -> None:
    sql.execute("begin")
    sql.execute(
        "select from bucketd.dead_letters order by dead_letter_id desc limit 1 for update"
    )  # the second step waits for us
    process = processes.start("dead", "replay", "--all", "--yes")
    left = b"select count(*) from bucketd.dead_letters"
    waiting = b"select count(*) from pg_locks where not granted"

    def cut_off() -> bool:
        return sql.execute(left).fetchone() == (2,) and sql.execute(waiting).fetchone() != (0,)

    asyncio.run(wait_until(cut_off, 20, "the first step, and the second that waits"))
    os.kill(process.pid, signal.SIGINT)
    assert asyncio.run(process.wait_exit(20)) == 130
    sql.execute("rollback")
    assert f"stopped behind {STRETCH:,} letters" in process.output()
    assert buried.done("dead", "replay", "--all", "--yes").out == "replayed: 2\n"
