"""`client.targets`: the HTTP endpoints that schedules call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from bucketd.client import queries
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store import targets
from bucketd.store.targets import Target


class Targets:
    """Targets are global: every tenant's schedules may call them by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 5,
        timeout_s: float = 30,
        max_attempts: int = 5,
        retry_base_s: float = 10,
        retry_cap_s: float = 3_600,
        batch_max: int = 1,
        batch_linger_ms: int = 0,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Target:
        """Creates the target, or makes it as given; `created` and `changed` of the result say which. Idempotent.

        headers: sent with each call; not those that bucketd or the connection sets. timeout_s: of one call, at most 1,800.
        max_attempts: calls a run before it is dead. retry_base_s, retry_cap_s: the n-th retry waits a random time below
        min(cap, base * 2^n). batch_max above 1: one request carries up to that many runs, waiting batch_linger_ms for more.

        Raises InvalidInput (nothing was changed), StoreUnavailable.
        """
        values = queries.target_values(
            name,
            url,
            headers or {},
            connect_timeout_s,
            timeout_s,
            max_attempts,
            retry_base_s,
            retry_cap_s,
            batch_max,
            batch_linger_ms,
        )
        return self._session.write(lambda: targets.put(values), connection)

    def get(self, name: str) -> Target:
        """The target of this name. Raises NotFound."""
        return self._session.read(lambda: targets.get(name))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Target]:
        """A page of targets by name; `limit` 1 to 1,000."""
        return self._session.read(lambda: queries.list_targets(limit, cursor))

    def delete(self, name: str, *, connection: psycopg.Connection[Any] | None = None) -> None:
        """Deletes a target that nothing uses. Raises NotFound, and Conflict while schedules or unfinished runs use it."""
        self._session.write(lambda: targets.delete(name), connection)


class AsyncTargets:
    """Targets are global: every tenant's schedules may call them by name."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def put(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 5,
        timeout_s: float = 30,
        max_attempts: int = 5,
        retry_base_s: float = 10,
        retry_cap_s: float = 3_600,
        batch_max: int = 1,
        batch_linger_ms: int = 0,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Target:
        """Creates the target, or makes it as given; `created` and `changed` of the result say which. Idempotent.

        headers: sent with each call; not those that bucketd or the connection sets. timeout_s: of one call, at most 1,800.
        max_attempts: calls a run before it is dead. retry_base_s, retry_cap_s: the n-th retry waits a random time below
        min(cap, base * 2^n). batch_max above 1: one request carries up to that many runs, waiting batch_linger_ms for more.

        Raises InvalidInput (nothing was changed), StoreUnavailable.
        """
        values = queries.target_values(
            name,
            url,
            headers or {},
            connect_timeout_s,
            timeout_s,
            max_attempts,
            retry_base_s,
            retry_cap_s,
            batch_max,
            batch_linger_ms,
        )
        return await self._session.write(lambda: targets.put(values), connection)

    async def get(self, name: str) -> Target:
        """The target of this name. Raises NotFound."""
        return await self._session.read(lambda: targets.get(name))

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Target]:
        """A page of targets by name; `limit` 1 to 1,000."""
        return await self._session.read(lambda: queries.list_targets(limit, cursor))

    async def delete(self, name: str, *, connection: psycopg.AsyncConnection[Any] | None = None) -> None:
        """Deletes a target that nothing uses. Raises NotFound, and Conflict while schedules or unfinished runs use it."""
        await self._session.write(lambda: targets.delete(name), connection)
