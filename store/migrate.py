"""Applies the numbered SQL files of `store/migrations/`, each once and in its own transaction, under one lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import psycopg

from bucketd.store.config import Settings
from bucketd.store.connect import check_postgres, connect, postgres_errors
from bucketd.store.errors import SchemaError

_LOCK = 0x6275636B657464  # "bucketd": the advisory lock of everybody who migrates
_PATIENCE = (
    "select set_config(name, '0', true) from unnest(array['lock_timeout', 'idle_in_transaction_session_timeout']) name"
)
_HISTORY = """
create schema if not exists bucketd;
create table if not exists bucketd.migrations (
    name text primary key, applied_at timestamptz not null default clock_timestamp()
)"""


def known() -> list[str]:
    """Names of the migrations that this code carries, in order."""
    folder = files("bucketd.store") / "migrations"
    return sorted(path.name[:-4] for path in folder.iterdir() if path.name.endswith(".sql"))


def migrate(dsn: str) -> list[str]:
    """Brings the database up to this code; returns the names applied now.

    Idempotent, and safe from many processes at once. Raises SchemaError if the server is too old or the schema is newer than
    this code, StoreUnavailable if the server cannot be reached.
    """
    settings = Settings.load({}, dsn=dsn, lock_timeout_s=60, statement_timeout_s=600)
    with (
        postgres_errors(settings),
        connect(settings, application="bucketd migrate") as connection,
        _alone(settings),
    ):
        check_postgres(connection)
        if not is_current_table(connection):
            with connection.transaction():
                connection.execute(_HISTORY)
        applied = {name for (name,) in connection.execute("select name from bucketd.migrations")}
        _refuse_newer(applied)
        pending = [name for name in known() if name not in applied]
        for name in pending:
            with connection.transaction():
                connection.execute(
                    (files("bucketd.store") / "migrations" / f"{name}.sql").read_text(encoding="utf-8").encode()
                )
                connection.execute("insert into bucketd.migrations (name) values (%s)", (name,))
    return pending


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Nobody else migrates inside. The lock is that of a transaction beside, for as long as it takes: see locks.py."""
    with connect(settings, application="bucketd migrate lock") as keeper, keeper.transaction():
        keeper.execute(_PATIENCE)
        keeper.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        yield


def is_current_table(connection: psycopg.Connection[Any]) -> bool:
    """Whether the history of migrations exists."""
    row = connection.execute("select to_regclass('bucketd.migrations') is not null").fetchone()
    return bool(row and row[0])


async def require_current(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raises SchemaError unless the database is exactly where this code expects it."""
    check_postgres(connection)
    row = await (await connection.execute("select to_regclass('bucketd.migrations') is not null")).fetchone()
    rows = await (await connection.execute("select name from bucketd.migrations")).fetchall() if row and row[0] else []
    applied = {name for (name,) in rows}
    _refuse_newer(applied)
    missing = [name for name in known() if name not in applied]
    if missing:
        raise SchemaError(
            f"expected the schema at {known()[-1]}, got a database without {', '.join(missing)}; run `bucketd migrate`"
        )


def _refuse_newer(applied: set[str]) -> None:
    newer = sorted(applied - set(known()))
    if newer:
        raise SchemaError(
            f"expected no migration beyond {known()[-1]}, got {', '.join(newer)}: the schema is newer than this code; upgrade bucketd"
        )
