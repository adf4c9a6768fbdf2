"""What `up` and `status` show, read in a few short statements: the cluster's figures, who owns what, how late runs start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    import redis

    from bucketd.store.config import Settings
    from bucketd.store.status import Status

LATENESS_WINDOW_S = 15


@dataclass(frozen=True, slots=True)
class Owner:
    """A scheduler node: partitions that Postgres has under its name, and what it says about itself in Redis, if it does."""

    node: str
    partitions: int
    host: str | None
    pid: int | None
    drained: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One look. `partition_owners` has 256 entries. Lateness in seconds: start of the first attempt after `due`."""

    monotonic_s: float
    status: Status
    owners: tuple[Owner, ...]
    partition_owners: tuple[str | None, ...] = field(repr=False)
    late_p50_s: float | None
    late_p99_s: float | None

    @property
    def drained(self) -> int | None:
        """Fires that all nodes drained since they started; None if no node says so."""
        counts = [owner.drained for owner in self.owners if owner.drained is not None]
        return sum(counts) if counts else None


class Reader:
    """Reads through one connection to each store. Not for several threads."""

    def __init__(self, settings: Settings, connection: psycopg.Connection[Any], redis: redis.Redis | None) -> None:
        from bucketd.client import Client
        from bucketd.store.keys import Keys

        self._client = Client(settings=settings).on(connection)
        self._connection = connection
        self._redis = redis
        self._keys = Keys(settings.redis_prefix)

    def read(self) -> Reading:
        """One look. Raises what the client raises, and psycopg's errors."""
        from bucketd.store import status
        from bucketd.store.operation import drive

        found = self._client.status()
        names = tuple(owner.hex if owner else None for owner in drive(status.owners(), self._connection))
        late_p50_s, late_p99_s = drive(status.lateness(LATENESS_WINDOW_S), self._connection)
        return Reading(time.monotonic(), found, self._owners(names, found.now), names, late_p50_s, late_p99_s)

    def _owners(self, names: tuple[str | None, ...], now: datetime) -> tuple[Owner, ...]:
        said = self._said(now)
        found = []
        for node in sorted({name for name in names if name} | set(said)):
            info = said.get(node, {})
            found.append(Owner(node, names.count(node), info.get("host"), info.get("pid"), info.get("drained")))
        return tuple(found)

    def _said(self, now: datetime) -> Mapping[str, Mapping[str, Any]]:
        """What living nodes say about themselves; nothing if Redis does not answer: it is the lesser half of the picture."""
        import msgpack

        from bucketd.store.redis_sync import UNAVAILABLE

        if self._redis is None:
            return {}
        try:
            alive: Any = self._redis.zrangebyscore(self._keys.members, f"({now.timestamp() * 1000}", "+inf")
            raw: Any = self._redis.hmget(self._keys.member_info, alive) if alive else []
            return {name.decode(): msgpack.unpackb(value) for name, value in zip(alive, raw, strict=True) if value}
        except UNAVAILABLE:
            return {}


@contextmanager
def reader(settings: Settings) -> Iterator[Reader]:
    """A reader on fresh connections. Raises StoreUnavailable, ConfigError."""
    from bucketd.store.connect import connect, postgres_errors
    from bucketd.store.redis_sync import UNAVAILABLE, make_sync_redis

    with ExitStack() as stack:
        with postgres_errors(settings):
            connection = connect(settings, application="bucketd status")
        stack.enter_context(connection)
        redis = None
        if settings.redis_url.get_secret_value():
            with suppress(*UNAVAILABLE):  # a cluster's nodes are asked for at once
                redis = stack.enter_context(make_sync_redis(settings))
        yield Reader(settings, connection, redis)
