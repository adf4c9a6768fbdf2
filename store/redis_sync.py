"""A synchronous client of Redis for people's commands and for nudges. The work is done through store/redis_client.py."""

from __future__ import annotations

from typing import Any

import redis
from redis.asyncio.connection import SSLConnection
from redis.cluster import ClusterNode, RedisCluster

from bucketd.store.config import Settings
from bucketd.store.redis_client import address_of, timeouts
from bucketd.store.redis_url import Address, Kind

# What it raises for a Redis that cannot be used now: redis-py's cluster client has errors that are not of the family.
UNAVAILABLE = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError)


def make_sync_redis(settings: Settings, *, read_timeout_s: float | None = None) -> redis.Redis:
    """A client on bytes, which may repeat what it likes. That of a cluster asks for the nodes here and now.

    Raises ConfigError: no address, or a malformed one; and UNAVAILABLE.
    """
    address = address_of(settings)
    options = {name: value for name, value in address.options.items() if name != "connection_class"}
    options |= timeouts(settings)
    if read_timeout_s is not None:
        options["socket_timeout"] = read_timeout_s
    if address.options.get("connection_class") is SSLConnection:
        options["ssl"] = True
    if address.kind is Kind.CLUSTER:
        nodes = [ClusterNode(*host) for host in address.hosts]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, **options)  # type: ignore[return-value]  # it has the same commands
    if address.kind is Kind.SENTINEL:
        return _of_sentinels(address, options)
    if not address.hosts:
        return redis.Redis(unix_socket_path=options.pop("path"), **options)
    return redis.Redis(host=address.hosts[0].name, port=address.hosts[0].port, **options)


def _of_sentinels(address: Address, options: dict[str, Any]) -> redis.Redis:
    asking = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl"))}
    asking |= address.sentinel_login or {}
    sentinels = redis.Sentinel(list(address.hosts), sentinel_kwargs=asking, **options)  # type: ignore[no-untyped-call]
    return sentinels.master_for(address.service)  # type: ignore[no-any-return, no-untyped-call]
