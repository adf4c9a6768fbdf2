"""The runner's lease on life: a row in `runners`, renewed on a connection of its own.

Invariant: nothing is called or written by an incarnation that Postgres may hold for dead. The process believes in its lease only
until (start of the last successful renewal + dead_after - margin) by the clock that goes on while the machine sleeps; a renewal
that finds the row dead ends the incarnation for good, and a new one with a new id begins.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.outage import Outage
from bucketd.runner.run import Incarnation
from bucketd.store import runners
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.log import event, warn


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """One renewal."""

    beats: int = 0
    incarnations_lost: int = 0


class Heartbeat:
    """Keeps one incarnation alive, and replaces it when it has died."""

    def __init__(self, settings: Settings, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._period_s = settings.runner_heartbeat_s
        self._dead_after_s = settings.runner_dead_after_s
        self._margin_s = min(settings.lease_margin_s, settings.runner_dead_after_s / 3)
        self._outage = Outage("heartbeat")
        self._due = asyncio.Event()
        self.current = Incarnation(uuid4())
        self.current.ended = True  # not born yet
        self.on_lost: list[Callable[[Incarnation], None]] = []
        self.on_alive: list[Callable[[], None]] = []

    def believed(self) -> bool:
        """Whether this runner may call and write now."""
        return not self.current.ended and monotonic() < self.current.believed_until

    def suspect(self) -> None:
        """Somebody saw that Postgres holds this incarnation for dead: look now."""
        self._due.set()

    async def run_once(self) -> HeartbeatReport:
        """Renews or, if the incarnation has ended, begins the next. Raises psycopg.Error."""
        asked_at = monotonic()
        async with self._pool.connection() as connection:
            if not self.current.ended and not await runners.beat(
                connection, self.current.runner_id, dead_after_s=self._dead_after_s
            ):
                self._lose()
                return HeartbeatReport(incarnations_lost=1)
            if self.current.ended:
                await self._begin(connection)
        was_believed = self.believed()
        self.current.believed_until = asked_at + self._dead_after_s - self._margin_s
        if not was_believed:
            for tell in self.on_alive:
                tell()
        return HeartbeatReport(beats=1)

    async def _begin(self, connection: psycopg.AsyncConnection[object]) -> None:
        born = Incarnation(uuid4())
        await runners.join(connection, born.runner_id, host=socket.gethostname(), pid=os.getpid())
        self.current = born
        event("runner_joined", runner=born.runner_id)

    def _lose(self) -> None:
        self.current.ended = True
        warn("runner_incarnation_lost", runner=self.current.runner_id)
        for tell in self.on_lost:
            tell(self.current)

    async def run(self) -> None:
        """Renews for ever; a failed renewal is tried again soon, a new incarnation begins at once."""
        while True:
            try:
                report = await self.run_once()
                self._outage.recovered()
                pause_s = 0.0 if report.incarnations_lost else self._period_s * random.uniform(0.8, 1.0)
            except psycopg.Error as error:
                pause_s = min(self._outage.failed(error), self._period_s)
            self._due.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
            except TimeoutError:
                pass

    async def leave(self) -> None:
        """Marks the incarnation dead in Postgres; its remaining rows are the reaper's at once. Raises psycopg.Error."""
        if not self.current.ended:
            self.current.ended = True
            async with self._pool.connection() as connection:
                await runners.leave(connection, self.current.runner_id)
