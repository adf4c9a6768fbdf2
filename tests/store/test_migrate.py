"""Migrations: once each, safe from many at once, and clear words for a schema or a server that does not fit."""

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import psycopg
import pytest

from bucketd.store import connect
from bucketd.store.errors import SchemaError, StoreUnavailable
from bucketd.store.migrate import known, migrate, require_current


async def require(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await require_current(connection)


def history(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [name for (name,) in connection.execute("select name from bucketd.migrations order by name")]


def test_names_are_numbered_without_a_gap() -> None:
    assert [int(name[:4]) for name in known()] == list(range(1, len(known()) + 1))


def test_a_second_run_applies_nothing(empty_dsn: str) -> None:
    assert migrate(empty_dsn) == known()
    assert migrate(empty_dsn) == []
    assert history(empty_dsn) == known()


def test_many_at_once_apply_each_once(empty_dsn: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(migrate, [empty_dsn] * 4))
    assert sorted(found, key=len) == [[], [], [], known()]
    assert history(empty_dsn) == known()


def test_a_migration_that_fails_leaves_nothing_behind(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("create schema bucketd")
        connection.execute("create table bucketd.dead_letters ()")  # in the way of one of the last statements
    with pytest.raises(psycopg.errors.DuplicateTable):
        migrate(empty_dsn)
    assert history(empty_dsn) == []
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        assert connection.execute("select to_regclass('bucketd.schedules')").fetchone() == (None,)
        connection.execute("drop table bucketd.dead_letters")
    assert migrate(empty_dsn) == known()


async def test_a_schema_newer_than_the_code_is_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into bucketd.migrations (name) values ('9999_later')")
    with pytest.raises(SchemaError, match=r"got 9999_later.*newer than this code; upgrade bucketd"):
        migrate(dsn)
    with pytest.raises(SchemaError, match="9999_later"):
        await require(dsn)


async def test_a_database_that_is_behind_is_told_what_to_do(empty_dsn: str, dsn: str) -> None:
    with pytest.raises(SchemaError, match=r"without 0001_spine.*bucketd migrate"):
        await require(empty_dsn)
    await require(dsn)


async def test_a_server_that_is_too_old(dsn: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "POSTGRES_MIN", 990_000)  # so that this one is
    with pytest.raises(SchemaError, match=r"expected Postgres 99 or newer, got \d+; upgrade the server"):
        migrate(empty_dsn)
    with pytest.raises(SchemaError, match="expected Postgres 99"):
        await require(dsn)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"app:\*\*\*@127\.0\.0\.1:1/x.*check BUCKETD_DSN") as caught:
        migrate("postgresql://app:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)


def test_everything_lives_in_our_schema(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        elsewhere = connection.execute(
            "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where nspname = 'public'"
        ).fetchall()
    assert elsewhere == []
    assert (files("bucketd.store") / "migrations" / f"{known()[0]}.sql").is_file()
