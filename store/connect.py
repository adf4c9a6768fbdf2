"""Connections to Postgres: time-outs, the checks that the server is fit, and errors that say what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from bucketd.store.config import Settings, without_secret
from bucketd.store.errors import ConfigError, SchemaError, StoreUnavailable
from bucketd.store.pooler import AsyncConnection, Connection, as_options, check_alive

POSTGRES_MIN = 140_000  # pg_snapshot and xid8 (13), multi-range-free SQL; tested from 14 on
WAIT_S = 10.0
# A pool tries again after 1, 2, 4, 8, .. s. It is to give up soon and to begin anew: after an outage of hours the next try is then at
# most 4 s away.
RECONNECT_S = 10.0


def session_settings(settings: Settings, *, hot: bool = False) -> dict[str, str]:
    """What holds in each session. `hot`: see make_pool.

    No transaction_timeout: Postgres knows it since 17 only, and a transaction of ours ends by the three that are set. No
    idle_session_timeout: pools keep connections on purpose.
    """
    chosen = {
        "statement_timeout": str(int(settings.statement_timeout_s * 1000)),
        "lock_timeout": str(int(settings.lock_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": "5000",
        "timezone": "UTC",
        "jit": "off",
    }
    if hot:
        chosen |= dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan"), "off")
        chosen["plan_cache_mode"] = "force_generic_plan"
    return chosen


def conninfo(settings: Settings, *, application: str = "bucketd", hot: bool = False) -> str:
    """The DSN with application name and time-outs. Raises ConfigError if there is none or it is malformed."""
    dsn = settings.dsn.get_secret_value()
    if not dsn:
        raise ConfigError(
            "expected BUCKETD_DSN (a Postgres DSN), got nothing; set it, or use `bucketd up` to try bucketd"
        )
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"expected a Postgres DSN in BUCKETD_DSN: {str(error).strip()}") from None
    given.setdefault("connect_timeout", "5")
    if "," in given.get("host", given.get("hostaddr", "")):
        given.setdefault("target_session_attrs", "read-write")  # of several servers the one that is the primary
    # A dead peer must not hold a statement for the kernel's default of minutes.
    given |= {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3", "tcp_user_timeout": "10000"}
    options = f"{given.pop('options', '')} {as_options(session_settings(settings, hot=hot))}".strip()
    return make_conninfo(**{**given, "application_name": application, "options": options})


def connect(settings: Settings, *, application: str = "bucketd") -> Connection:
    """An autocommit connection. Raises ConfigError, psycopg.OperationalError."""
    return Connection.connect(conninfo(settings, application=application), session=session_settings(settings))


async def connect_async(settings: Settings, *, application: str = "bucketd") -> AsyncConnection:
    """`connect` for an event loop."""
    session = session_settings(settings)
    return await AsyncConnection.connect(conninfo(settings, application=application), session=session)


def make_pool(settings: Settings, *, application: str, size: int, hot: bool = False) -> AsyncConnectionPool:
    """A closed pool of `size` autocommit connections to the primary; open it in a task group's life.

    `hot`: for the batched statements of the data path. There the plans are known, and one that changes with the statistics
    (a hash join over a day of runs) would be an outage; so nested loops over the primary key are all that is allowed.
    """

    async def refuse_standby(connection: AsyncConnection) -> None:
        if connection.standby:
            raise psycopg.OperationalError(
                f"{connection.info.host}:{connection.info.port} is a standby; name all servers in BUCKETD_DSN: the primary is found"
            )

    async def check(connection: AsyncConnection) -> None:
        # After a restart all are dead: else each of them would cost somebody a failed statement and a pause.
        check_alive(connection)

    async def begin_anew(pool: AsyncConnectionPool[Any]) -> None:
        await (
            pool.check()
        )  # lets it grow; by itself it would do so only for somebody who comes after it gave up, not who waits

    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        conninfo(settings, application=application, hot=hot),
        connection_class=AsyncConnection,
        min_size=size,  # no connecting in the first burst, and descriptors that do not depend on the load
        max_size=size,
        kwargs={"prepare_threshold": 0, "session": session_settings(settings, hot=hot)},
        configure=refuse_standby,
        check=check,
        open=False,
        timeout=WAIT_S,
        reconnect_timeout=RECONNECT_S,
        reconnect_failed=begin_anew,
        max_lifetime=3600,
        name=application,
    )
    return pool


@asynccontextmanager
async def without_statement_timeout(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """For statements inside that take minutes; not inside a transaction."""
    if isinstance(connection, AsyncConnection) and (prefix := connection.prefix):
        connection.prefix = prefix + b", set_config('statement_timeout', '0', true)"
        try:
            yield
        finally:
            connection.prefix = prefix
        return
    await connection.execute("set statement_timeout = 0")
    try:
        yield
    finally:
        await connection.execute("reset statement_timeout")


@contextmanager
def postgres_errors(settings: Settings) -> Iterator[None]:
    """Maps psycopg's connection errors to StoreUnavailable, with the address and without the password."""
    try:
        yield
    except psycopg.OperationalError as error:
        shown = without_secret(settings.dsn.get_secret_value())
        raise StoreUnavailable(
            f"cannot use Postgres at {shown}: {_reason(settings, error)}; check BUCKETD_DSN and that it runs"
        ) from error


def check_postgres(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raises SchemaError if the server is too old."""
    version = connection.info.server_version
    if version < POSTGRES_MIN:
        raise SchemaError(
            f"expected Postgres {POSTGRES_MIN // 10_000} or newer, got {version // 10_000}; upgrade the server"
        )


def _reason(settings: Settings, error: psycopg.OperationalError) -> str:
    if isinstance(error, PoolTimeout):  # a pool keeps to itself why it cannot connect
        try:
            connect(settings).close()
        except psycopg.OperationalError as reason:
            return _first_line(reason)
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
