"""A client of the master that sentinels name. They are asked at each connection, so a fail-over costs the connections alone."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.exceptions import RedisError


class SentinelRedis(Redis):
    """Closed together with the clients of the sentinels."""

    def __init__(self, sentinels: Sentinels, pool: SentinelConnectionPool) -> None:
        super().__init__(connection_pool=pool)
        self._sentinels = sentinels

    async def aclose(self, close_connection_pool: bool | None = True) -> None:
        """Closes all connections."""
        await super().aclose(close_connection_pool=close_connection_pool)
        await self._sentinels.aclose()


class Sentinels(Sentinel):
    """redis-py's, but with an error that people can read: its own has all settings of each client and not what went wrong."""

    sentinels: list[Redis]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Where the master is, by the first sentinel that knows one that is up. Raises MasterNotFoundError."""
        said = []
        for sentinel in list(self.sentinels):
            try:
                masters: Any = await sentinel.sentinel_masters()
            except (RedisError, OSError) as error:
                said.append(f"{_host(sentinel)} {type(error).__name__}: {error}".splitlines()[0])
                continue
            state = masters.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels.remove(sentinel)  # who answers is asked first the next time
                self.sentinels.insert(0, sentinel)
                return str(state["ip"]), int(state["port"])
            said.append(f"{_host(sentinel)} {'says that it is down' if state else 'does not know it'}")
        raise MasterNotFoundError(f"no master {service_name!r}: {'; '.join(said)}")


def _host(sentinel: Redis) -> str:
    place = sentinel.connection_pool.connection_kwargs
    return f"{place['host']}:{place['port']}"
