"""`client.backlog`: what waits for a runner, how much of it there is, and dropping it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from bucketd.client.dropping import Drop
from bucketd.client.inventory import Backlog, Inventory, wanted
from bucketd.client.session import AsyncSession, Session
from bucketd.store.waiting import Dropped


class Backlogs:
    """Runs that wait: held, deferred, behind live work, or for their next attempt."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def show(
        self,
        *,
        by: str = "target",
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        top: int = 100,
        bound: int = 1_000_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Backlog:
        """What waits, by tenant and target (by="target") or by the values of a label (by="label=KEY"), the `top` largest groups.

        Only of a tenant, of a target, of schedules with all of these labels. Counts day by day, the oldest first, and no further than
        `bound` (1 to 100,000,000): then `more` is set. With open backfills, and windows that settling still owes, and how many runs
        will come of them at most. progress(done, total): called after each day. Raises InvalidInput, NotFound (target).
        """
        found = Inventory(by, wanted(tenant, target, labels), bound, top)
        days = self._session.write(found.begin)
        for done, day in enumerate(days, 1):
            found.add(self._session.write(partial(found.count, day), patient=True))
            if progress:
                progress(done, len(days))
            if found.full:
                break
        return self._session.read(found.finish)

    def drop(
        self,
        *,
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        kind: str | Iterable[str] | None = None,
        before: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Dropped:
        """Cancels runs that wait, with the reason `dropped`; none that a runner has, or takes meanwhile, and none that is not due yet.

        Say which: a filter (labels: all of these) or all=True. kind: only held, deferred, background or retrying ones. before: only
        those scheduled before. Users' backfills that are wholly inside the filter end, unless kind leaves background out. Windows that
        settling owes are never dropped: they must be judged first, and what comes of them can be dropped then.

        Goes by steps of some thousands, a transaction each: safe to repeat and to interrupt. A note with the count stands in the audit
        log. progress(done): called after each step with the runs found so far. dry_run: only counts. connection: everything in your
        transaction. Raises InvalidInput, NotFound (target).
        """
        drop = Drop(tenant, target, labels, kind, before, all, dry_run)
        step = self._session.write(drop.begin, connection)
        while step.stages:
            step = self._session.write(partial(drop.go_on, step), connection, patient=True)
            if progress:
                progress(step.dropped.runs)
        return step.dropped


class AsyncBacklogs:
    """Runs that wait: held, deferred, behind live work, or for their next attempt."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def show(
        self,
        *,
        by: str = "target",
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        top: int = 100,
        bound: int = 1_000_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Backlog:
        """What waits, by tenant and target (by="target") or by the values of a label (by="label=KEY"), the `top` largest groups.

        Only of a tenant, of a target, of schedules with all of these labels. Counts day by day, the oldest first, and no further than
        `bound` (1 to 100,000,000): then `more` is set. With open backfills, and windows that settling still owes, and how many runs
        will come of them at most. progress(done, total): called after each day. Raises InvalidInput, NotFound (target).
        """
        found = Inventory(by, wanted(tenant, target, labels), bound, top)
        days = await self._session.write(found.begin)
        for done, day in enumerate(days, 1):
            found.add(await self._session.write(partial(found.count, day), patient=True))
            if progress:
                progress(done, len(days))
            if found.full:
                break
        return await self._session.read(found.finish)

    async def drop(
        self,
        *,
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        kind: str | Iterable[str] | None = None,
        before: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Dropped:
        """Cancels runs that wait, with the reason `dropped`; none that a runner has, or takes meanwhile, and none that is not due yet.

        Say which: a filter (labels: all of these) or all=True. kind: only held, deferred, background or retrying ones. before: only
        those scheduled before. Users' backfills that are wholly inside the filter end, unless kind leaves background out. Windows that
        settling owes are never dropped: they must be judged first, and what comes of them can be dropped then.

        Goes by steps of some thousands, a transaction each: safe to repeat and to interrupt. A note with the count stands in the audit
        log. progress(done): called after each step with the runs found so far. dry_run: only counts. connection: everything in your
        transaction. Raises InvalidInput, NotFound (target).
        """
        drop = Drop(tenant, target, labels, kind, before, all, dry_run)
        step = await self._session.write(drop.begin, connection)
        while step.stages:
            step = await self._session.write(partial(drop.go_on, step), connection, patient=True)
            if progress:
                progress(step.dropped.runs)
        return step.dropped
