"""Targets by id, at least at the revision that the claiming statement saw.

Every claim brings the revisions of its targets, and a claimed run waits for its call a few seconds at most (lanes.py): so nothing
else has to keep the cache fresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.outage import Outage
from bucketd.store.keyring import KeyRing
from bucketd.store.runners import CallTarget, call_targets


class Targets:
    """The cache. Bounded by the number of targets that exist; a target is small."""

    def __init__(self, pool: AsyncConnectionPool, ring: KeyRing) -> None:
        self._pool = pool
        self._ring = ring
        self._known: dict[int, CallTarget] = {}
        self._outage = Outage("targets")

    def get(self, target_id: int) -> CallTarget | None:
        """The target; None if it was deleted, schedule and all, after `need` was asked for it."""
        return self._known.get(target_id)

    def of_batches(self) -> list[int]:
        """Those that take many runs a request."""
        return [target_id for target_id, target in self._known.items() if target.batch_max > 1]

    def forget(self) -> None:
        """Postgres may have lost what was read of them, and give their revisions out again."""
        self._known.clear()

    async def need(self, revisions: Mapping[int, int]) -> None:
        """Returns when each target that exists is known at this revision or a newer one; waits while Postgres is away."""
        stale = [t for t, revision in revisions.items() if t not in self._known or self._known[t].revision < revision]
        while stale:
            try:
                await self._fetch(stale)
                self._outage.recovered()
                return
            except psycopg.Error as error:
                await asyncio.sleep(self._outage.failed(error))

    async def _fetch(self, target_ids: list[int]) -> None:
        async with self._pool.connection() as connection:
            for target in await call_targets(connection, target_ids, self._ring):
                self._known[target.target_id] = target
