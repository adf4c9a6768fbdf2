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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from psycopg_pool import AsyncConnectionPool
from redis.exceptions import RedisError

from bucketd.runner.outage import Outage
from bucketd.runner.run import Incarnation
from bucketd.store import partitions, runners
from bucketd.store.clock import Clock, monotonic
from bucketd.store.config import Settings
from bucketd.store.log import event, warn
from bucketd.store.timelines import OldPrimary


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """One renewal."""

    beats: int = 0
    incarnations_lost: int = 0


class Heartbeat:
    """Keeps one incarnation alive, and replaces it when it has died."""

    def __init__(
        self, settings: Settings, pool: AsyncConnectionPool, refuse_old: Callable[[str], Awaitable[None]]
    ) -> None:
        """`refuse_old`: raises OldPrimary for a history that is over."""
        self._pool = pool
        self._refuse_old = refuse_old
        self._period_s = settings.runner_heartbeat_s
        self._dead_after_s = settings.runner_dead_after_s
        self._margin_s = min(settings.lease_margin_s, settings.runner_dead_after_s / 3)
        self._message_version = settings.message_version
        self._outage = Outage("heartbeat")
        self._due = asyncio.Event()
        self.clock = Clock()  # the cluster's
        self.changed_at = float("-inf")  # when Postgres was seen to go on by another history
        self.current = Incarnation(uuid4())
        self.current.ended = True  # not born yet
        self.on_lost: list[Callable[[Incarnation], None]] = []
        self.on_alive: list[Callable[[], None]] = []
        self.on_history: list[Callable[[], None]] = []  # rows that somebody keeps in memory may be lost
        self.history: str | None = None  # of Postgres, at the last beat

    def believed(self) -> bool:
        """Whether this runner may call and write now."""
        return not self.current.ended and monotonic() < self.current.believed_until

    @property
    def answered(self) -> bool:
        """Whether Postgres answered the last renewal, whatever it said."""
        return not self._outage.lasts

    def suspect(self) -> None:
        """Somebody saw that Postgres holds this incarnation for dead: look now."""
        self._due.set()

    async def run_once(self) -> HeartbeatReport:
        """Renews or, if the incarnation has ended, begins the next. Raises psycopg.Error; OldPrimary: nothing may be done here."""
        asked_at = monotonic()
        async with self._pool.connection() as connection:
            history = await self._renew(connection)
            await partitions.read_clock(connection, self.clock)
        if history is None:
            self._lose()
            return HeartbeatReport(incarnations_lost=1)
        was_believed, until = self.believed(), asked_at + self._dead_after_s - self._margin_s
        if was_believed:
            self.current.believed_until = until
        await self._judge(history)
        if not was_believed:
            self.current.believed_until = until
            for tell in self.on_alive:
                tell()
        return HeartbeatReport(beats=1)

    async def _renew(self, connection: psycopg.AsyncConnection[object]) -> str | None:
        """The history of Postgres; None: the incarnation is dead there, or its row was lost."""
        if self.current.ended:
            return await self._begin(connection)
        return await runners.beat(connection, self.current.runner_id, dead_after_s=self._dead_after_s)

    async def _judge(self, history: str) -> None:
        """Raises OldPrimary, and ends the incarnation, where others work on a newer timeline."""
        try:
            await self._refuse_old(history)
        except RedisError:
            pass  # the lease of a runner does not hang on Redis
        except OldPrimary:
            self._lose()
            raise
        if self.history not in (None, history):
            warn("postgres_history_changed", before=self.history, now=history)
            self.changed_at = monotonic()
            for tell in self.on_history:
                tell()
        self.history = history

    async def _begin(self, connection: psycopg.AsyncConnection[object]) -> str:
        born = Incarnation(uuid4())
        history = await runners.join(
            connection,
            born.runner_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            message_version=self._message_version,
        )
        self.current = born
        event("runner_joined", runner=born.runner_id)
        return history

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
