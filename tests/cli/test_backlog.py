"""`bucketd backlog`: a look at what waits, and dropping it; and what a release says before it is one."""

from typing import Any

import psycopg
import pytest
from redis import Redis

from bucketd.store import depth
from bucketd.store.config import Settings
from bucketd.store.fires import encode_message
from bucketd.store.keys import Keys
from tests.cli.conftest import Cli


@pytest.fixture
def sql(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def waits(cli: Cli, sql: psycopg.Connection[Any]) -> Cli:
    """Four held runs of one tenant, and two deferred ones of another; their schedules are labelled."""
    cli.done("target", "put", "hook", "http://127.0.0.1:9/")
    cli.done("schedule", "put", "a", "--target", "hook", "--every", "1m", "--tenant", "acme", "--label", "plan=pro")
    cli.done("schedule", "put", "b", "--target", "hook", "--every", "1m", "--tenant", "beta", "--label", "plan=free")
    for tenant, status, wake, number in (("acme", "held", "infinity", 4), ("beta", "deferred", "2020-01-01", 2)):
        sql.execute(
            "insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, wake_at)"
            " select date_trunc('second', bucketd.bucketd_now()) - n * interval '1 hour', id, tenant, target_id, %s, 'settle', %s"
            " from bucketd.schedules, generate_series(1, %s) n where tenant = %s",
            (status, wake, number, tenant),
        )
    return cli


def test_a_look(waits: Cli) -> None:
    found = waits.done("backlog", "--json").json
    groups = [(g["tenant"], g["target"], g["held"], g["deferred"]) for g in found["groups"]]
    assert groups == [("acme", "hook", 4, 0), ("beta", "hook", 0, 2)]
    assert (found["total"]["held"], found["more"], found["queued"], found["backfills"]) == (4, False, 0, [])
    shown = waits.done("backlog").out
    assert "acme" in shown
    assert "6 runs wait; the oldest since 4h00m" in shown
    by_label = waits.done("backlog", "--by", "label=plan", "--json").json
    assert {g["label"]: g["held"] + g["deferred"] for g in by_label["groups"]} == {"pro": 4, "free": 2}
    assert "plan" in waits.done("backlog", "--by", "label=plan").out
    assert waits.done("backlog", "--tenant", "acme", "--json").json["total"]["deferred"] == 0
    assert "at least 3 runs wait" in waits.done("backlog", "--bound", "3").out
    assert "smaller groups" in waits.done("backlog", "--top", "1").err
    assert waits.done("backlog", "--tenant", "nobody").err == "nothing waits\n"


def test_a_look_says_what_is_to_come(waits: Cli, sql: psycopg.Connection[Any]) -> None:
    backfill = waits.done("backfill", "a", "--tenant", "acme", "--from", "-2h", "--to", "-1h").out.strip()
    sql.execute(
        "insert into bucketd.backfills (kind, partition_id, from_at, until_at)"
        " select 'settle', p, now() - interval '1 h', now() from generate_series(0, 255) p"
    )
    shown = waits.done("backlog").out
    assert f'backfill {backfill} ({{"name": "a", "tenant": "acme"}}, ' in shown
    assert "0 runs written, at most 60 to come" in shown
    assert "256 windows that nobody watched" in shown
    assert "at most 2 runs to come" in shown


def test_fires_in_the_queues(waits: Cli, settings: Settings, redis_url: str) -> None:
    keys = Keys(settings.redis_prefix)
    with Redis.from_url(redis_url) as redis:
        for shard, counts in ((3, (5, 7, 2)), (4, (1,))):
            running = 0
            for number in counts:
                running += number
                redis.xadd(
                    keys.queues[shard], {"m": encode_message(shard, [b"x" * 40] * number), "c": running, "n": number}
                )
        assert depth.fires(redis, keys) == 15
        redis.xtrim(keys.queues[3], 2, approximate=False)
        assert depth.fires(redis, keys) == 10
        redis.xadd(keys.queues[5], {"whose": "not ours"})
    assert "10 fires in the queues" in waits.done("backlog").out
    assert waits.done("--redis-url", "redis://127.0.0.1:1", "backlog", "--json").json["queued"] is None


def test_a_drop_counts_and_asks(waits: Cli) -> None:
    assert waits.done("backlog", "drop", "--all", "--dry-run").out == "would drop: 6 runs (held 4, deferred 2)\n"
    refused = waits("backlog", "drop", "--tenant", "acme")
    assert refused.code == 2
    assert "Drop 4 runs (held 4)?" in refused.err
    assert waits.done("backlog", "--json").json["total"]["held"] == 4
    assert waits.done("backlog", "drop", "--label", "plan=free", "--yes", "--json").json == {
        "held": 0, "deferred": 2, "background": 0, "retrying": 0, "backfills": [],
    }  # fmt: skip
    assert (
        waits.done("backlog", "drop", "--tenant", "acme", "--before", "-150m", "--yes").out
        == "dropped: 2 runs (held 2)\n"
    )
    assert waits.done("backlog", "drop", "--tenant", "acme", "--kind", "retrying").out == "dropped: 0 runs\n"
    deeds = waits.done("audit", "--kind", "run", "--json").lines
    assert [(deed["action"], deed["tenant"], deed["changes"]) for deed in deeds] == [
        ("drop", "acme", {"dropped": [0, 2]}), ("drop", None, {"dropped": [0, 2]}),
    ]  # fmt: skip
    assert "label plan=free" in deeds[1]["name"]
    waits.done("backfill", "a", "--tenant", "acme", "--from", "-2h", "--to", "-1h")
    assert "Drop 2 runs (held 2) and backfill" in waits("backlog", "drop", "--tenant", "acme").err


def test_bad_choices(waits: Cli) -> None:
    for arguments, code, reason in (
        (("drop",), 2, "either --all, or some of"),
        (("drop", "--all", "--tenant", "acme"), 2, "either --all, or some of"),
        (("drop", "--all", "--kind", "running", "--yes"), 2, "expected kind to be one of"),
        (("drop", "--all", "--before", "noon", "--yes"), 2, "before: expected an instant"),
        (("drop", "--target", "nowhere", "--yes"), 3, "'nowhere'"),
        (("--tenant", "acme", "drop", "--all", "--yes"), 2, "expected options behind drop"),
        (("--by", "plan"), 2, "label=KEY"),
        (("--target", "nowhere"), 3, "'nowhere'"),
    ):
        result = waits("backlog", *arguments)
        assert result.code == code, (arguments, result)
        assert reason in result.err, (arguments, result.err)
    assert waits.done("backlog", "--json").json["total"]["held"] == 4


def test_a_release_says_what_it_will_do(waits: Cli) -> None:
    waits.done("hold", "--tenant", "acme")
    counts = {"deferred": 1, "retrying": 0, "skipped": 3, "cancelled": 0, "catch_up": 0}
    assert waits.done("release", "--tenant", "acme", "--dry-run", "--json").json == {"scope": "tenant acme", **counts}
    assert waits.done("holds", "--json").lines != []
    done = waits.done("release", "--tenant", "acme")
    assert done.out == "released: tenant acme; deferred 1, retrying 0, skipped 3, cancelled 0, catch-up 0\n"
    assert done.err == "releasing 4 held runs: deferred 1, retrying 0, skipped 3, cancelled 0, catch-up 0\n"
    assert waits("release", "--tenant", "acme", "--dry-run").code == 3
