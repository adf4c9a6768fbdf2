"""`bucketd doctor`, and what the other commands say of a store that is not fit."""

from urllib.parse import quote

import psycopg
import redis

from bucketd.cli.checks import Verdict, skew
from bucketd.embedded import Server
from tests.cli.conftest import Cli, Result


def found(result: Result) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in result.json["checks"]}


def test_fresh_stores(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:  # its template may be as old as the suite
        connection.execute("update bucketd.partitions set settled_through = bucketd.bucketd_now()")
    result = cli.done("doctor", "--json")
    assert result.json["verdict"] == "warn"
    assert {name for name, verdict in found(result).items() if verdict != "ok"} == {"runners", "schedulers"}
    drawn = cli.done("doctor").out
    assert "warn  runners" in drawn
    assert "-> start one: `bucketd runner`" in drawn


def test_wrong_addresses(bare: Cli) -> None:
    result = bare(
        "--dsn",
        "postgresql://u:hunter2@127.0.0.1:1/d",
        "--redis-url",
        "redis://:hunter2@127.0.0.1:1/0",
        "doctor",
        "--json",
    )
    assert result.code == 1
    assert found(result) == {"postgres": "fail", "redis": "fail"}
    assert "hunter2" not in result.out + result.err
    assert "127.0.0.1:1" in result.out


def test_no_redis_is_a_warning(bare: Cli, dsn: str) -> None:
    assert found(bare.done("--dsn", dsn, "doctor", "--json"))["redis"] == "warn"


def test_unmigrated(bare: Cli, empty_dsn: str) -> None:
    result = bare("--dsn", empty_dsn, "doctor")
    assert result.code == 1
    assert "fail  schema" in result.out
    assert "run `bucketd migrate`" in result.out


def test_newer_schema_missing_day_and_rights(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "select to_char(days_through - interval '3 days', 'YYYYMMDD') from bucketd.cluster"
        ).fetchone()
        assert row is not None
        connection.execute(f"drop table bucketd.runs_{row[0]}".encode())
        missing = cli("doctor", "--json")
        assert missing.code == 1
        assert found(missing)["days of runs"] == "fail"

        role = "watcher_of_" + row[0]
        connection.execute(
            f"create role {role}; grant {role} to current_user; grant usage on schema bucketd to {role}".encode()
        )
        connection.execute(f"grant select on all tables in schema bucketd to {role}".encode())
        try:
            watching = cli("--dsn", f"{dsn}?options={quote(f'-c role={role}')}", "doctor", "--json")
        finally:
            connection.execute(f"drop owned by {role}; drop role {role}".encode())
        assert found(watching)["rights"] == "fail"
        assert found(watching)["rights of schedulers"] == "warn"

        connection.execute("insert into bucketd.migrations (name) values ('9999_future')")
    newer = cli("doctor", "--json")
    assert found(newer)["schema"] == "fail"
    assert "upgrade bucketd" in newer.out
    assert cli("migrate").code == 4


def test_evicting_redis(bare: Cli, dsn: str, own_redis: Server) -> None:
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    stores = ("--dsn", dsn, "--redis-url", own_redis.url)
    result = bare(*stores, "doctor")
    assert result.code == 1
    assert "fail  eviction policy" in result.out
    assert "CONFIG SET maxmemory-policy noeviction" in result.out
    for command in (("scheduler",), ("up", "--plain")):
        refused = bare.process(*stores, *command)
        assert refused.code == 4, refused
        assert "expected maxmemory-policy noeviction" in refused.err
        assert "Traceback" not in refused.err


def test_scheduler_on_wrong_stores(bare: Cli, dsn: str) -> None:
    wrong = bare.process("--dsn", dsn, "--redis-url", "redis://127.0.0.1:1/0", "scheduler")
    assert wrong.code == 4
    assert "cannot use Redis at redis://127.0.0.1:1/0" in wrong.err
    assert bare.process("--dsn", dsn, "scheduler").code == 2


def test_skew() -> None:
    assert skew("x", 100.2, 100.0, 100.0).verdict is Verdict.OK
    ahead = skew("x", 100.3, 100.0, 100.0)
    assert ahead.verdict is Verdict.WARN
    assert "300 ms ahead" in ahead.found
    assert skew("x", 99.0, 99.99, 100.01).found.startswith("1000 ms behind")
    assert skew("x", 100.3, 99.0, 101.0).verdict is Verdict.OK, "within what the way there and back leaves unsure"
