"""What callers see when a store is away, wrong or old; and what the cluster is told by Redis."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis
from psycopg.sql import SQL, Identifier

from bucketd import Client, ScheduleInput, every
from bucketd.errors import ConfigError, Conflict, InvalidInput, SchemaError, StoreUnavailable
from bucketd.store import schedules
from bucketd.store.keys import Keys


def test_a_wrong_address_says_so_at_once_and_keeps_the_password_to_itself() -> None:
    with (
        Client("postgresql://someone:hush@127.0.0.1:1/db") as client,
        pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught,
    ):
        client.schedules.list()
    assert "hush" not in str(caught.value)
    assert "hush" not in str(caught.value.__cause__)


def test_no_dsn_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BUCKETD_")]:
        monkeypatch.delenv(name)
    with Client() as client, pytest.raises(ConfigError, match="BUCKETD_DSN"):
        client.schedules.list()


def test_the_environment_speaks_when_nothing_is_given(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_DSN", dsn)
    with Client() as client:
        assert client.status().schedules == 0


def test_a_database_without_the_schema_is_named(empty_dsn: str) -> None:
    with Client(empty_dsn) as client, pytest.raises(SchemaError, match="bucketd migrate"):
        client.schedules.list()


def test_a_client_outlives_its_connections(client: Client, sql: psycopg.Connection[Any]) -> None:
    client.schedules.put("a", every("1h"), target="hook")
    for write in (False, True):
        sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bucketd client'")
        if write:
            client.schedules.put("b", every("1h"), target="hook")
        else:
            assert len(client.schedules.list()) == 1
    assert len(client.schedules.list()) == 2


def test_a_failed_call_does_not_spoil_the_next(client: Client) -> None:
    for _ in range(6):  # more often than there are connections
        with pytest.raises(InvalidInput):
            client.schedules.put("a", every("1h"), target="nowhere")
    assert client.schedules.put("a", every("1h"), target="hook").created


def test_a_clash_is_repeated_on_the_clients_own_connection(
    client: Client, dsn: str, sql: psycopg.Connection[Any]
) -> None:
    """Two rows locked crosswise: Postgres ends one of the transactions, and the client begins its own again."""
    ids = [client.schedules.put(name, every("1h"), target="hook").id for name in ("a", "b")]
    sql.execute(SQL("alter database {} set deadlock_timeout = '50ms'").format(Identifier(sql.info.dbname)))
    failures: list[BaseException] = []

    def delete() -> None:
        try:
            with Client(dsn) as own:
                own._session.write(lambda: schedules.delete(ids))
        except BaseException as error:
            failures.append(error)

    with psycopg.connect(dsn) as other:
        other.execute("set deadlock_timeout = '1min'")  # so that the client is the one to be ended
        other.execute("select from bucketd.schedules where name = 'b' for update")
        deleting = threading.Thread(target=delete)
        deleting.start()
        _wait_until_blocked(sql)
        other.execute("select from bucketd.schedules where name = 'a' for update")
        other.commit()
        deleting.join(timeout=20)
    assert (deleting.is_alive(), failures) == (False, [])
    assert client.schedules.list().items == ()


def _wait_until_blocked(sql: psycopg.Connection[Any]) -> None:
    for _ in range(10_000):
        found = sql.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchone()
        if found and found[0]:
            return
    raise AssertionError("nobody waits for a lock")


@pytest.mark.parametrize("bulk", [False, True])
def test_a_pause_that_commits_while_a_put_waits_is_kept(
    client: Client, dsn: str, sql: psycopg.Connection[Any], bulk: bool
) -> None:
    client.schedules.put("a", every("1h"), target="hook")

    def put() -> None:
        with Client(dsn) as own:
            if bulk:
                own.schedules.put_many([ScheduleInput(name="a", timing=every("1h"), target="hook", payload=1)])
            else:
                own.schedules.put("a", every("1h"), target="hook", payload=1)

    with psycopg.connect(dsn) as other:
        client.schedules.pause("a", connection=other)
        putting = threading.Thread(target=put)
        putting.start()
        _wait_until_blocked(sql)
        other.commit()
        putting.join(timeout=20)
    schedule = client.schedules.get("a")
    assert (schedule.paused, schedule.payload) == (True, 1)


def test_a_clash_on_the_callers_connection_is_the_callers_to_repeat(client: Client, dsn: str) -> None:
    client.schedules.put("a", every("1h"), target="hook")
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        client.on(connection).schedules.get("a")
        client.schedules.put("a", every("1h"), target="hook", payload=1)
        with pytest.raises(Conflict, match="run it again"):
            client.schedules.put("a", every("1h"), target="hook", payload=2, connection=connection)
        connection.rollback()


def test_threads_share_a_client(client: Client) -> None:
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(10):
                client.schedules.put(f"{n}-{i}", every("1h"), target="hook")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(client.schedules.list()) == 80


@pytest.fixture
def heard(redis_url: str, prefix: str) -> Iterator[Callable[[], set[str]]]:
    """What was published since the last call, listened to until half a second of silence."""
    keys = Keys(prefix)
    names = {keys.nudge.encode(): "nudge", keys.wake.encode(): "wake"}
    with redis.Redis.from_url(redis_url) as connection, connection.pubsub() as listener:
        listener.subscribe(keys.nudge, keys.wake)
        for _ in names:
            confirmed = listener.get_message(timeout=5)
            assert confirmed
            assert confirmed["type"] == "subscribe"

        def channels() -> set[str]:
            found = set()
            while message := listener.get_message(timeout=0.5):
                found.add(names[message["channel"]])
            return found

        yield channels


def test_the_cluster_is_told_after_the_clients_own_commit(
    dsn: str, redis_url: str, prefix: str, heard: Callable[[], set[str]]
) -> None:
    with Client(dsn, redis_url, prefix) as client:
        client.targets.put("hook", "http://localhost:9/hook")
        client.schedules.put("a", every("1h"), target="hook")
        assert heard() == {"nudge"}
        client.schedules.trigger("a")
        assert heard() == {"wake"}
        client.hold(all=True)
        client.release(all=True)
        assert heard() == {"nudge", "wake"}
        with psycopg.connect(dsn) as connection:
            client.schedules.put("b", every("1h"), target="hook", connection=connection)
            client.on(connection).schedules.trigger("b")
        assert heard() == set()


def test_a_redis_that_is_away_fails_no_call_and_is_left_alone_for_a_while(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(dsn, "redis://127.0.0.1:1/0") as client:
        client.targets.put("hook", "http://localhost:9/hook")
        for i in range(5):
            client.schedules.put(f"s{i}", every("1h"), target="hook")
    assert [r.getMessage().split()[0] for r in caplog.records if r.name == "bucketd"] == ["nudge_failed"]


def test_a_malformed_redis_url_fails_no_call(dsn: str) -> None:
    with Client(dsn, "nonsense://x") as client:
        client.targets.put("hook", "http://localhost:9/hook")
        assert client.schedules.put("a", every("1h"), target="hook").created
