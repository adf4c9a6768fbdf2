"""Commands that steer what runs: backfill, hold, runs, dead letters, status."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bucketd.store import breakers
from bucketd.store.config import Settings
from bucketd.store.operation import drive
from tests.cli.conftest import Cli
from tests.support.processes import Processes
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


def wait(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    return asyncio.run(wait_until(condition, timeout_s, what))


def status_of(cli: Cli, run: str) -> str:
    return str(cli.done("runs", "show", run, "--json").json["status"])


def test_hold_and_release(cli: Cli) -> None:
    cli.done("target", "put", "hook", "http://127.0.0.1:9/")
    assert cli.done("holds").err == "nothing is held\n"
    assert cli.done("hold", "--tenant", "acme", "--reason", "they asked").out == "held: tenant acme\n"
    assert cli.done("hold", "--target", "hook").out == "held: target hook\n"
    assert cli.done("hold", "--all", "--json").json["scope"] == "all"
    assert [hold["scope"] for hold in cli.done("holds", "--json").lines] == ["tenant", "target", "all"]
    assert "they asked" in cli.done("holds").out
    assert cli.done("status", "--json").json["holds"] == 3
    assert cli.done("release", "--all").out.startswith("released: all; deferred 0")
    assert cli("release", "--all").code == 3
    assert cli("hold", "--target", "nobody").code == 3
    for arguments in ((), ("--all", "--tenant", "acme")):
        result = cli("hold", *arguments)
        assert result.code == 2
        assert "exactly one of --all, --tenant and --target" in result.err


def test_an_open_breaker_is_seen_and_closed(cli: Cli, settings: Settings) -> None:
    cli.done("target", "put", "hook", "http://127.0.0.1:9/")
    with psycopg.connect(settings.dsn.get_secret_value()) as connection:
        drive(breakers.open_(1, "all \x1b[31m failed", openings=2, pause_s=60.0), connection)
    (shown,) = cli.done("status", "--json").json["breakers"]
    assert (shown["target"], shown["openings"]) == ("hook", 2)
    drawn = cli.done("status").out
    assert "breaker open" in drawn
    assert "hook: all \N{REPLACEMENT CHARACTER}[31m failed; since 20" in drawn
    assert "2 times in a row, next probe at 20" in drawn
    assert [(hold["kind"], hold["scope"]) for hold in cli.done("holds", "--json").lines] == [("breaker", "target")]
    assert cli("release", "--target", "hook").code == 3
    closed = cli.done("release", "--target", "hook", "--breaker")
    assert closed.out.startswith("released: breaker of target hook; deferred 0")
    assert cli("release", "--all", "--breaker").code == 2
    assert cli.done("status", "--json").json["breakers"] == []


def test_bad_choices(cli: Cli) -> None:
    for arguments, code, reason in (
        (("runs", "list", "--status", "done"), 2, "succeeded"),
        (("runs", "list", "--from", "yesterday"), 2, "from: expected an instant"),
        (("runs", "show", "x"), 2, "expected a run id"),
        (("runs", "show", "20261130T090000Z-" + "0" * 32), 3, "does not exist"),
        (("runs", "cancel", "20261130T090000Z-" + "0" * 32), 3, "does not exist"),
        (("dead", "show", "7"), 3, "does not exist"),
        (("dead", "replay"), 2, "expected ids, or --all"),
        (("dead", "replay", "7", "--all"), 2, "expected ids, or --all"),
        (("dead", "discard", "7"), 3, "nothing was changed"),
        (("backfill", "--all"), 2, "expected --from and --to"),
        (("backfill", "--from", "-1h", "--to", "now"), 2, "either --all, or some of NAME"),
        (("backfill", "s", "--from", "-1h", "--to", "now"), 3, "'s'"),
        (("backfill", "--all", "--from", "-1h", "--to", "-2h"), 2, "before"),
        (("backfill", "--all", "--from", "-1h", "--to", "+2h"), 2, "now"),
    ):
        result = cli(*arguments)
        assert result.code == code, (arguments, result)
        assert reason in result.err, (arguments, result.err)
    assert cli.done("dead", "replay", "--all").out == "replayed: 0\n"
    assert cli.done("dead", "list").err == "no dead letters\n"
    assert cli.done("runs", "list", "--json").out == ""


@pytest.fixture
def cluster(cli: Cli, processes: Processes, target: Target) -> Cli:
    """With a scheduler and a runner, and a target `hook` that records."""
    processes.start("scheduler")
    processes.start("runner")
    cli.done("target", "put", "hook", target.url)
    return cli


def test_backfill_then_a_dead_letter_and_its_replay(cluster: Cli, target: Target) -> None:
    cluster.done("schedule", "put", "s", "--target", "hook", "--every", "1m", "--paused", "--payload", '"old"')
    done = cluster.done("backfill", "s", "--from", "-10m", "--to", "now", "--wait")
    assert "10 runs written, all ended" in done.out
    assert len(target.runs) == 10
    runs = cluster.done("runs", "list", "--name", "s", "--status", "succeeded", "--json").lines
    assert {run["id"] for run in runs} == {run["run_id"] for run in target.runs}
    assert cluster.done("backfill", "s", "--from", "-10m", "--to", "now", "--wait", "--json").json["runs_created"] <= 1
    assert cluster("runs", "cancel", runs[0]["id"]).code == 5

    target.script = lambda request: Reply(status=400)
    run = cluster.done("schedule", "trigger", "s").out.strip()
    wait(lambda: status_of(cluster, run) == "dead", 10, "the run's death")
    letter = cluster.done("dead", "list", "--json").lines[0]
    assert (letter["run_id"], letter["payload"]) == (run, "old")
    assert "400" in cluster.done("dead", "show", str(letter["id"])).out
    assert "http" in cluster.done("runs", "show", run).out, "its failures, as a table"
    asked = cluster("dead", "replay", "--all")
    assert asked.code == 2
    assert "Replay 1 dead letter?" in asked.err
    target.script = lambda request: Reply()
    cluster.done("schedule", "put", "s", "--target", "hook", "--every", "1m", "--paused", "--payload", '"new"')
    assert cluster.done("dead", "replay", "--all", "--yes").out == "replayed: 1\n"
    wait(lambda: status_of(cluster, run) == "succeeded", 10, "the replayed run")
    last = target.runs[-1]
    assert (last["run_id"], last["attempt"], last["payload"]) == (run, 2, "new"), "the schedule's payload, as it is now"
    assert cluster.done("dead", "discard", "--name", "s", "--yes", "--json").json == {"discarded": 0}

    status = cluster.done("status", "--json").json
    assert (status["schedules"], status["paused"], status["runners"]) == (1, 1, 1)
    assert [node["partitions"] for node in status["nodes"]] == [256]
    assert "256 partitions" in cluster.done("status").out
    checks = {check["name"]: check["verdict"] for check in cluster.done("doctor", "--json").json["checks"]}
    assert set(checks.values()) == {"ok"}, checks
