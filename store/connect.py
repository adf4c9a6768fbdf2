"""Connections to both stores: time-outs, the checks that a server is fit, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import redis
from hiredis import pack_command as pack_in_c
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer

from bucketd.store.config import Settings, without_secret
from bucketd.store.errors import ConfigError, SchemaError, StoreUnavailable, UnfitRedis

POSTGRES_MIN = 140_000  # pg_snapshot and xid8 (13), multi-range-free SQL; tested from 14 on
REDIS_MIN = (6, 2)  # XAUTOCLAIM, XTRIM MINID


def conninfo(settings: Settings, *, application: str = "bucketd") -> str:
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
    options = (
        f"-c statement_timeout={int(settings.statement_timeout_s * 1000)}"
        f" -c lock_timeout={int(settings.lock_timeout_s * 1000)}"
        " -c idle_in_transaction_session_timeout=5000 -c timezone=UTC -c jit=off"
    )
    given.setdefault("connect_timeout", "5")
    # A dead peer must not hold a statement for the kernel's default of minutes.
    given |= {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3", "tcp_user_timeout": "10000"}
    merged = f"{given.pop('options', '')} {options}".strip()
    return make_conninfo(**{**given, "application_name": application, "options": merged})


def make_pool(settings: Settings, *, application: str, size: int, hot: bool = False) -> AsyncConnectionPool:
    """A closed pool of `size` autocommit connections; open it in a task group's life.

    `hot`: for the batched statements of the data path. There the plans are known, and one that changes with the statistics
    (a hash join over a day of runs) would be an outage; so nested loops over the primary key are all that is allowed.
    """

    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        if hot:
            await connection.execute(
                "select set_config(name, 'off', false) from unnest(array['enable_seqscan', 'enable_hashjoin',"
                " 'enable_mergejoin', 'enable_bitmapscan']) name"
            )
            await connection.execute("set plan_cache_mode = force_generic_plan")

    return AsyncConnectionPool(
        conninfo(settings, application=application),
        min_size=size,  # no connecting in the first burst, and descriptors that do not depend on the load
        max_size=size,
        kwargs={"autocommit": True, "prepare_threshold": 0},
        configure=configure,
        open=False,
        timeout=10,
        max_lifetime=3600,
        name=application,
    )


def make_redis(settings: Settings, *, connections: int = 32, blocking_s: float = 0.0) -> Redis:
    """A Redis client on bytes. `blocking_s`: the longest blocking read that will be made through it.

    Never retries by itself: every caller knows whether a repeat is harmless, a library does not.
    """
    url = settings.redis_url.get_secret_value()
    if not url:
        raise ConfigError("expected BUCKETD_REDIS_URL (e.g. redis://localhost:6379/0), got nothing; set it")
    try:
        client: Redis = Redis.from_url(
            url,
            socket_connect_timeout=settings.redis_connect_timeout_s,
            socket_timeout=settings.redis_read_timeout_s + blocking_s,
            max_connections=connections,
            health_check_interval=0,
            retry=Retry(NoBackoff(), 0),
        )
        pool = client.connection_pool
        pool.connection_class = _packing(pool.connection_class)
    except ValueError as error:
        raise ConfigError(f"expected a Redis URL in BUCKETD_REDIS_URL: {error}") from None
    return client


def _packing(kind: type[Any]) -> type[Any]:
    """A kind of connection that packs commands in C, as the synchronous ones of redis-py do. The asynchronous ones join strings in
    Python: a ZADD of 1,000 fires took 2.6 times as long."""
    serializer = HiredisRespSerializer()

    def pack_command(self: Any, *args: Any) -> list[bytes]:
        # What the serializer does before it calls the same function looks at each argument in Python: a third of the work of a ZADD.
        if args[0] == "ZADD":
            return [pack_in_c(args)]
        packed: list[bytes] = serializer.pack(*args)
        return packed

    return type(f"Packing{kind.__name__}", (kind,), {"pack_command": pack_command})


@contextmanager
def postgres_errors(settings: Settings) -> Iterator[None]:
    """Maps psycopg's connection errors to StoreUnavailable, with the address and without the password."""
    try:
        yield
    except psycopg.OperationalError as error:
        shown = without_secret(settings.dsn.get_secret_value())
        raise StoreUnavailable(
            f"cannot use Postgres at {shown}: {_first_line(error)}; check BUCKETD_DSN and that it runs"
        ) from error


def check_postgres(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raises SchemaError if the server is too old."""
    version = connection.info.server_version
    if version < POSTGRES_MIN:
        raise SchemaError(
            f"expected Postgres {POSTGRES_MIN // 10_000} or newer, got {version // 10_000}; upgrade the server"
        )


async def check_redis(client: Redis, settings: Settings) -> None:
    """Raises UnfitRedis if the server is too old or evicts keys, StoreUnavailable if it cannot be reached."""
    shown = without_secret(settings.redis_url.get_secret_value())
    try:
        server = await client.info("server")
        policy = (await client.info("memory")).get("maxmemory_policy", "unknown")
    except (redis.exceptions.RedisError, OSError) as error:
        raise StoreUnavailable(
            f"cannot use Redis at {shown}: {_first_line(error)}; check BUCKETD_REDIS_URL and that it runs"
        ) from error
    version = str(server.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < REDIS_MIN:
        raise UnfitRedis(f"expected Redis 6.2 or newer (or Valkey) at {shown}, got {version}; upgrade it")
    if policy != "noeviction":
        raise UnfitRedis(
            f"expected maxmemory-policy noeviction at {shown}, got {policy}: an evicting Redis drops fires silently;"
            " run `CONFIG SET maxmemory-policy noeviction` and put it into redis.conf"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
