"""Both stores, for one command about the ring, and the errors that its caller can be told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.store import members, partitions
from bucketd.store.clock import Clock
from bucketd.store.config import Settings, without_secret
from bucketd.store.connect import conninfo, postgres_errors
from bucketd.store.errors import StoreUnavailable
from bucketd.store.keys import Keys
from bucketd.store.members import Members
from bucketd.store.migrate import require_current
from bucketd.store.redis_client import make_redis


@dataclass(frozen=True, slots=True)
class Access:
    """Open stores. Not for several tasks at once."""

    connection: psycopg.AsyncConnection[Any]
    redis: Redis
    keys: Keys
    clock: Clock = field(default_factory=Clock)

    async def now_s(self) -> float:
        """The cluster's time, epoch seconds."""
        await partitions.read_clock(self.connection, self.clock)
        return self.clock.now()

    async def members(self) -> Members:
        """The ring as it is."""
        return await members.read(self.redis, self.keys, await self.now_s())


@asynccontextmanager
async def access(settings: Settings) -> AsyncIterator[Access]:
    """Both stores. Raises ConfigError, StoreUnavailable (also for what fails later), SchemaError."""
    redis = make_redis(settings)
    try:
        with postgres_errors(settings):
            connection = await psycopg.AsyncConnection.connect(
                conninfo(settings, application="bucketd ring"), autocommit=True
            )
            async with connection:
                await require_current(connection)
                yield Access(connection, redis, Keys(settings.redis_prefix))
    except (RedisError, OSError) as error:
        shown = without_secret(settings.redis_url.get_secret_value())
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreUnavailable(
            f"cannot use Redis at {shown}: {first}; check BUCKETD_REDIS_URL and that it runs"
        ) from error
    finally:
        await redis.aclose()
