"""Clients of Redis, whatever stands behind the address, and the check that its servers are fit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from hiredis import pack_command as pack_in_c
from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.connection import DefaultParser, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from bucketd.store.config import Settings, without_secret
from bucketd.store.errors import ConfigError, StoreUnavailable, UnfitRedis
from bucketd.store.redis_cluster import ClusterRedis
from bucketd.store.redis_sentinel import SentinelRedis, Sentinels
from bucketd.store.redis_url import Address, Host, Kind, parse

REDIS_MIN = (6, 2)  # XAUTOCLAIM, XTRIM MINID
# A server that says so was master when we connected and is a replica now: only a new connection can find the new master.
DEMOTED = ("READONLY", "MASTERDOWN", "UNBLOCKED")


def make_redis(settings: Settings, *, connections: int = 32, blocking_s: float = 0.0) -> Redis:
    """A Redis client on bytes. `blocking_s`: the longest blocking read that will be made through it. Of a cluster or a
    sentinel's master it looks the same. Raises ConfigError: no address, or a malformed one.

    Never retries by itself: every caller knows whether a repeat is harmless, a library does not.
    """
    address = address_of(settings)
    options = {**address.options, **timeouts(settings, blocking_s), "retry": Retry(NoBackoff(), 0)}
    options |= {"max_connections": connections, "health_check_interval": 0, "parser_class": Parser}
    client = _of(address, options)
    try:
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError) as error:
        raise ConfigError(f"expected options of redis-py in the query of BUCKETD_REDIS_URL: {error}") from None
    return client


def _of(address: Address, options: dict[str, Any]) -> Redis:
    if address.kind is Kind.SENTINEL:
        return _of_sentinels(address, options)
    options["connection_class"] = _packing(options.get("connection_class", Connection))
    if address.kind is Kind.CLUSTER:
        return ClusterRedis(address.hosts, partial(_of_one, options))
    return _of_one(options, address.hosts[0] if address.hosts else None)


def address_of(settings: Settings) -> Address:
    """Where Redis is. Raises ConfigError if there is no address, or a malformed one."""
    url = settings.redis_url.get_secret_value()
    if not url:
        raise ConfigError("expected BUCKETD_REDIS_URL (e.g. redis://localhost:6379/0), got nothing; set it")
    return parse(url)


async def servers(client: Redis) -> Mapping[str, Redis]:
    """A client of every server that takes writes: of a cluster each master under its address, else the client under ""."""
    if isinstance(client, ClusterRedis):
        return {str(host): master for host, master in (await client.masters()).items()}
    return {"": client}


async def check_redis(client: Redis, settings: Settings) -> None:
    """Raises UnfitRedis if a server is too old or evicts keys, StoreUnavailable if one cannot be reached."""
    shown = without_secret(settings.redis_url.get_secret_value())
    try:
        for name, server in (await servers(client)).items():
            where = f"{shown} (node {name})" if name else shown
            _check_one(await server.info("server"), await server.info("memory"), where)
    except (RedisError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreUnavailable(
            f"cannot use Redis at {shown}: {first}; check BUCKETD_REDIS_URL and that it runs"
        ) from error


def _check_one(server: Mapping[str, Any], memory: Mapping[str, Any], where: str) -> None:
    version = str(server.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < REDIS_MIN:
        raise UnfitRedis(f"expected Redis 6.2 or newer (or Valkey) at {where}, got {version}; upgrade it")
    policy = memory.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        raise UnfitRedis(
            f"expected maxmemory-policy noeviction at {where}, got {policy}: an evicting Redis drops fires silently;"
            " run `CONFIG SET maxmemory-policy noeviction` and put it into redis.conf"
        )


class Parser(DefaultParser):  # type: ignore[misc, valid-type]  # chosen by redis-py at its import
    """redis-py's, but a server that was demoted ends the connection, so that the next one finds the new master."""

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        """The exception of an error reply. Inside a script of an older server the reason stands in the middle."""
        if any(word in response for word in DEMOTED):
            return Disconnected(f"the server is no longer a master: {response}")
        error: Exception = super().parse_error(response)
        return error


def _of_one(options: Mapping[str, Any], host: Host | None) -> Redis:
    place = {} if host is None else {"host": host.name, "port": host.port}
    arguments: dict[str, Any] = {**options, **place}
    return Redis.from_pool(ConnectionPool(**arguments))


def _of_sentinels(address: Address, options: dict[str, Any]) -> Redis:
    is_tls = options.pop("connection_class", None) is SSLConnection
    kind = _packing(SentinelManagedSSLConnection if is_tls else SentinelManagedConnection)
    asking = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_")) or name == "retry"}
    if is_tls:
        asking["ssl"] = True
    asking |= address.sentinel_login or {}
    sentinels = Sentinels(list(address.hosts), sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    options["connection_class"] = kind
    pool = SentinelConnectionPool(address.service, sentinels, **options)  # type: ignore[no-untyped-call]
    return SentinelRedis(sentinels, pool)


def timeouts(settings: Settings, blocking_s: float = 0.0) -> dict[str, float]:
    """Those of a connection, as redis-py names them."""
    return {
        "socket_connect_timeout": settings.redis_connect_timeout_s,
        "socket_timeout": settings.redis_read_timeout_s + blocking_s,
    }


@cache
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
