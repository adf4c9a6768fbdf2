"""`AsyncClient`: the twin of `Client` for asyncio; a test keeps the two alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

import psycopg

from bucketd.client import steering
from bucketd.client.async_schedules import AsyncSchedules
from bucketd.client.backfills import AsyncBackfills
from bucketd.client.dead import AsyncDeadLetters
from bucketd.client.runs import AsyncRuns
from bucketd.client.session import AsyncSession, Where
from bucketd.client.targets import AsyncTargets
from bucketd.store import holds, status
from bucketd.store.backfills import Backfill
from bucketd.store.config import Settings
from bucketd.store.holds import Hold, Release
from bucketd.store.status import Status


class AsyncClient:
    """Puts, reads and steers schedules and their runs.

    dsn: Postgres; without one the settings, or else BUCKETD_* in the environment, are read when the first call needs them.
    redis_url: only to tell the cluster at once what it would find within a second anyway. Safe among the tasks of one event
    loop. Nothing is connected before the first call. Close it, or use it in an async with statement.
    """

    def __init__(
        self,
        dsn: str | None = None,
        redis_url: str | None = None,
        redis_prefix: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._bind(AsyncSession(Where(dsn, redis_url, redis_prefix, settings)))

    def on(self, connection: psycopg.AsyncConnection[Any]) -> AsyncClient:
        """A client on your own psycopg connection: everything runs in your transaction, and only you commit or roll back.

        What is written takes effect with your commit; the cluster notices within about a second of it.
        """
        bound = AsyncClient.__new__(AsyncClient)
        bound._bind(self._session.on(connection))
        return bound

    async def backfill(
        self,
        from_: datetime,
        to: datetime,
        *,
        name: str | None = None,
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        all: bool = False,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Backfill:
        """Runs the occurrences of [from_, to) that have no run yet, behind live work, even of paused schedules.

        Say which schedules: a filter (name is of tenant "default" unless tenant is given; labels: all of these) or all=True. Returns
        at once; scheduler nodes make the runs, see `client.backfills`.

        Raises InvalidInput (a range that is empty, ends after now, or begins below the retention floor), NotFound (name, target).
        """
        return await self._session.write(
            lambda: steering.backfill(from_, to, name, tenant, target, labels, all), connection, "nudge", "wake"
        )

    async def hold(
        self,
        *,
        all: bool = False,
        tenant: str | None = None,
        target: str | None = None,
        reason: str = "",
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Hold:
        """Starts no run of everything, of a tenant or of a target until the release; what falls due is kept. Calls under way go on.

        Exactly one of all=True, tenant and target. Idempotent. Raises InvalidInput, NotFound (target).
        """
        return await self._session.write(lambda: steering.hold(all, tenant, target, reason), connection, "nudge")

    async def release(
        self,
        *,
        all: bool = False,
        tenant: str | None = None,
        target: str | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Release:
        """Ends a hold. What was kept runs by each schedule's misfire policy and deadline; triggers and backfills always run.

        Runs that another hold covers stay held. Raises InvalidInput, NotFound (no such hold).
        """
        return await self._session.write(
            lambda: steering.release(all, tenant, target), connection, "nudge", "wake", patient=True
        )

    async def holds(self) -> list[Hold]:
        """All holds, oldest first."""
        return await self._session.read(holds.list_all)

    async def status(self) -> Status:
        """The cluster's state in figures. Cheap but for two counts over the index of schedules (0.5 s for 3 million)."""
        dead_after_s = self._session.dead_after_s()
        return await self._session.read(lambda: status.read(dead_after_s))

    async def close(self) -> None:
        """Closes the client's own connections. Your own connections stay open."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _bind(self, session: AsyncSession) -> None:
        self._session = session
        self.targets = AsyncTargets(session)
        self.schedules = AsyncSchedules(session)
        self.runs = AsyncRuns(session)
        self.backfills = AsyncBackfills(session)
        self.dead = AsyncDeadLetters(session)
