"""Rows with a due wake_at go on (retries, triggers, backfills, what settling deferred or a dead runner left), and those that wait for
a place as soon as there is one (places.py).

Runs at each `wake_poll_s`, at once after a full batch, and at once when a message on the wake channel says that rows were
written. If the process dies after the commit, the rows stand under a claim of a dead runner. If the reply is lost, nobody knows
the claim, and the sweep frees its rows with their attempt number, for no call was made.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis

from bucketd.runner.admission import Admission
from bucketd.runner.bodies import body, moment_of
from bucketd.runner.cancel import Cancellations
from bucketd.runner.channel import listen
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.outage import Outage
from bucketd.runner.places import Places
from bucketd.runner.run import Claim, ClaimBook, Run
from bucketd.store import wake as statement
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import Keys
from bucketd.store.model import run_id

MOST = 1_000  # rows a statement: with their payloads they are heavier than fires
JITTER = 0.7  # the shortest period, of the one that is set
BRISK_S = 0.1  # the period while runs queue behind others of their schedule: most calls take less
BRISK_FOR_S = 1.0  # it lasts so long after one was seen


@dataclass(frozen=True, slots=True)
class WakeReport:
    """One look. `ended`: rows that got a verdict instead of an attempt, by status."""

    woken: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    full: bool = False


class Waker:
    """Claims due rows while there is room."""

    def __init__(
        self,
        settings: Settings,
        pool: AsyncConnectionPool,
        redis: Redis,
        *,
        admission: Admission,
        heartbeat: Heartbeat,
        book: ClaimBook,
        cancellations: Cancellations,
        dispatch: Callable[[dict[int, list[Run]], dict[int, int]], Any],
        room: Callable[[int], statement.Room],
        places: Places,
        probing: Callable[[Run], None],
    ) -> None:
        self._pool = pool
        self._redis = redis
        self._channel = Keys(settings.redis_prefix).wake
        self._most = min(MOST, settings.confirm_batch)
        self._poll_s = settings.wake_poll_s
        self._dead_after_s = settings.runner_dead_after_s
        self._admission = admission
        self._heartbeat = heartbeat
        self._book = book
        self._cancellations = cancellations
        self._dispatch = dispatch
        self._room = room
        self._places = places
        self._looked_at = 0.0
        self._brisk_until = 0.0
        self._probing = probing
        self._outage = Outage("wake")
        self._listening = Outage("wake_channel")
        self.nudged = asyncio.Event()

    async def run_once(self) -> WakeReport:
        """One statement. Raises psycopg.Error; what was claimed then is the sweep's."""
        await self._look()
        room = self._room(self._most)
        if not room.total or self._heartbeat.current.ended:
            return WakeReport()
        claim = self._book.new(self._heartbeat.current, woken=True)
        self._admission.reserve(room.total)
        runs: list[Run] = []
        rows: list[statement.Woken] = []
        try:
            async with self._pool.connection() as connection:
                claim.asked_at = monotonic()
                rows = await statement.take(
                    connection, claim.incarnation.runner_id, claim.number, room=room, dead_after_s=self._dead_after_s
                )
            runs = [_run(row, claim) for row in _running(rows)]
            if overtaken := [run_id(row.schedule_id, row.scheduled_at) for row in rows if row.status == "overtaken"]:
                self._cancellations.announce(overtaken)
        finally:
            self._admission.claimed(room.total, len(runs), sum(len(run.body) for run in runs))
            self._book.opened(claim, len(runs))
        self._places.took(room, rows)
        if runs:
            for run in [run for run, row in zip(runs, _running(rows), strict=True) if row.probe]:
                self._probing(run)
            await self._dispatch(*_by_target(rows, runs))
        ended = Counter(row.status for row in rows if row.status != "running")
        return WakeReport(len(runs), ended, full=len(rows) >= room.total)

    async def _look(self) -> None:
        """Once a period: for which targets and tenants do rows wait until there is a place?"""
        if monotonic() - self._looked_at >= self._poll_s * JITTER:
            self._looked_at = monotonic()
            async with self._pool.connection() as connection:
                await self._places.find(connection)

    async def pause(self, report: WakeReport) -> None:
        """Until the next look is due."""
        self._outage.recovered()
        if report.full:
            await self._admission.wait()
            return
        if report.ended["waiting"]:
            self._brisk_until = monotonic() + BRISK_FOR_S
        poll_s = min(BRISK_S, self._poll_s) if monotonic() < self._brisk_until else self._poll_s
        try:
            async with asyncio.timeout(poll_s * random.uniform(JITTER, 1.0)):
                await self.nudged.wait()
        except TimeoutError:
            pass
        self.nudged.clear()

    async def survive(self, error: psycopg.Error) -> None:
        """Notes a failure and waits a little."""
        await asyncio.sleep(self._outage.failed(error))

    async def listen(self) -> None:
        """Looks at once when somebody says that rows were written. Without Redis the poll is all there is."""
        await listen(self._redis, self._channel, lambda message: self.nudged.set(), self._listening)


def _running(rows: list[statement.Woken]) -> list[statement.Woken]:
    return [row for row in rows if row.status == "running"]


def _run(row: statement.Woken, claim: Claim) -> Run:
    moment = moment_of(row.scheduled_at)
    run_id = moment.id_prefix + row.schedule_id.hex
    text = body(run_id, row.name, row.tenant, moment.instants, row.attempt, row.payload)
    return Run(
        row.schedule_id.bytes,
        moment.at,
        row.attempt,
        claim,
        row.tenant,
        row.target_id,
        row.timeout_s,
        run_id,
        text,
        row.background,
        None if row.late_s is None else claim.asked_at - row.late_s,
    )


def _by_target(rows: list[statement.Woken], runs: list[Run]) -> tuple[dict[int, list[Run]], dict[int, int]]:
    by_target: dict[int, list[Run]] = {}
    for run in runs:
        by_target.setdefault(run.target_id, []).append(run)
    return by_target, {row.target_id: row.revision for row in rows if row.status == "running"}
