"""`client.runs`: what ran, what waits, what failed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import psycopg

from bucketd.client import history
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store.history import Run


class Runs:
    """Runs by their id, as `trigger` returns it and as a target gets it in `webhook-id`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        *,
        name: str | None = None,
        tenant: str | None = None,
        target: str | None = None,
        status: str | Iterable[str] | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Run]:
        """A page of runs by scheduled_at, newest first; `limit` 1 to 1,000.

        from_ (inclusive) and to (exclusive) bound scheduled_at; without from_ it is the last 24 hours, except for statuses that only
        wait (retrying, deferred, waiting, held), which are found wherever they lie. The work of a page is bounded, so with a rare
        filter a page can be short, even empty, and still have a cursor: go on until that is None. A cursor keeps its range.

        Raises InvalidInput: an unknown status, a naive datetime, a cursor that is none.
        """
        return self._session.read(lambda: history.list_runs(name, tenant, target, status, from_, to, limit, cursor))

    def get(self, run_id: str) -> Run:
        """The run of this id. Raises InvalidInput (no run id), NotFound (also: its day was dropped by retention)."""
        return self._session.read(lambda: history.get_run(run_id))

    def cancel(self, run_id: str, *, connection: psycopg.Connection[Any] | None = None) -> Run:
        """Ends an unfinished run. A call that is under way is broken off within seconds (one run of a batch request is not); what it
        brings until then is discarded, and it is not retried.

        Raises InvalidInput (no run id), NotFound, and Conflict if the run has ended.
        """
        return self._session.write(lambda: history.cancel_run(run_id), connection)


class AsyncRuns:
    """Runs by their id, as `trigger` returns it and as a target gets it in `webhook-id`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(
        self,
        *,
        name: str | None = None,
        tenant: str | None = None,
        target: str | None = None,
        status: str | Iterable[str] | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Run]:
        """A page of runs by scheduled_at, newest first; `limit` 1 to 1,000.

        from_ (inclusive) and to (exclusive) bound scheduled_at; without from_ it is the last 24 hours, except for statuses that only
        wait (retrying, deferred, waiting, held), which are found wherever they lie. The work of a page is bounded, so with a rare
        filter a page can be short, even empty, and still have a cursor: go on until that is None. A cursor keeps its range.

        Raises InvalidInput: an unknown status, a naive datetime, a cursor that is none.
        """
        return await self._session.read(
            lambda: history.list_runs(name, tenant, target, status, from_, to, limit, cursor)
        )

    async def get(self, run_id: str) -> Run:
        """The run of this id. Raises InvalidInput (no run id), NotFound (also: its day was dropped by retention)."""
        return await self._session.read(lambda: history.get_run(run_id))

    async def cancel(self, run_id: str, *, connection: psycopg.AsyncConnection[Any] | None = None) -> Run:
        """Ends an unfinished run. A call that is under way is broken off within seconds (one run of a batch request is not); what it
        brings until then is discarded, and it is not retried.

        Raises InvalidInput (no run id), NotFound, and Conflict if the run has ended.
        """
        return await self._session.write(lambda: history.cancel_run(run_id), connection)
