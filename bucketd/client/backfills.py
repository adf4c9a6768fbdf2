"""`client.backfills`: how far the backfills are that `client.backfill` asked for."""

from __future__ import annotations

from typing import Any

import psycopg

from bucketd.client import steering
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store import backfills
from bucketd.store.backfills import Backfill


class Backfills:
    """Backfills by id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, *, open_only: bool = False, limit: int = 100, cursor: str | None = None) -> Page[Backfill]:
        """A page of backfills, newest first; `limit` 1 to 1,000. open_only: those that still make runs."""
        return self._session.read(lambda: steering.list_backfills(open_only, limit, cursor))

    def get(self, backfill_id: int) -> Backfill:
        """The backfill of this id. Raises NotFound."""
        return self._session.read(lambda: backfills.get(backfill_id))

    def cancel(self, backfill_id: int, *, connection: psycopg.Connection[Any] | None = None) -> Backfill:
        """Makes no more runs for it; those that exist go on. Raises NotFound, and Conflict if it has ended."""
        return self._session.write(lambda: backfills.cancel(backfill_id), connection)


class AsyncBackfills:
    """Backfills by id."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(self, *, open_only: bool = False, limit: int = 100, cursor: str | None = None) -> Page[Backfill]:
        """A page of backfills, newest first; `limit` 1 to 1,000. open_only: those that still make runs."""
        return await self._session.read(lambda: steering.list_backfills(open_only, limit, cursor))

    async def get(self, backfill_id: int) -> Backfill:
        """The backfill of this id. Raises NotFound."""
        return await self._session.read(lambda: backfills.get(backfill_id))

    async def cancel(self, backfill_id: int, *, connection: psycopg.AsyncConnection[Any] | None = None) -> Backfill:
        """Makes no more runs for it; those that exist go on. Raises NotFound, and Conflict if it has ended."""
        return await self._session.write(lambda: backfills.cancel(backfill_id), connection)
