"""Circuit breakers: how targets that fail are left alone, and how they come back.

Closed: what this runner hears is counted (health.py). Open: a row in `holds`, written by whoever saw it first, so that no runner and no
scheduler takes a run of the target from then on; calls under way end and count for nothing. Half-open: when the row's time has come one
runner lets a few held runs through (probes), whichever runner takes them; the first that is answered closes the breaker, one that fails
makes the pause longer. If the process dies between any two of these steps the row stands with its next time, and any other runner goes
on; what a closed breaker held is judged by the runner that closed it, and by the schedulers' reaper if that one dies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.breaker import Outcome, Rules, outcome_of
from bucketd.runner.call import Answer
from bucketd.runner.health import Health, Suspect
from bucketd.runner.outage import Outage
from bucketd.runner.run import Run
from bucketd.store import breakers, holds
from bucketd.store.clock import monotonic
from bucketd.store.log import event, warn
from bucketd.store.operation import Operation, T, drive_async
from bucketd.store.runners import CallTarget


@dataclass(frozen=True, slots=True)
class BreakerReport:
    """One turn. `breaker_runs_judged`: held runs of closed breakers that got their verdict."""

    breakers_opened: int = 0
    breakers_closed: int = 0
    breaker_probes: int = 0
    breaker_runs_judged: int = 0


class _Probe(NamedTuple):
    """A run that was let through, and the openings of its breaker then."""

    target_id: int
    openings: int


class Breakers:
    """All targets' breakers. Bounded by the number of targets that are called."""

    def __init__(self, pool: AsyncConnectionPool, rules: Rules) -> None:
        self._pool = pool
        self._rules = rules
        self._open: dict[int, int] = {}  # openings by target
        self._probes: dict[tuple[bytes, bytes, int], _Probe] = {}
        self._probed: dict[_Probe, bool] = {}  # whether one was answered well; not written yet
        self._look_at_s: dict[int, float] = {}  # due breakers that had nothing to probe with
        self._judging: holds.Place | None = None
        self._urgent = asyncio.Event()
        self._outage = Outage("breakers")
        self.health = Health(rules)
        self.on_open: list[Callable[[int], object]] = []  # with the target's id
        self.on_freed: list[Callable[[], object]] = []  # held runs may go on

    def heard(self, runs: Sequence[Run], target: CallTarget, answer: Answer) -> None:
        """The answer to a request, one however many runs it carried. Cheap: called for every one."""
        if not answer.sent:
            return
        outcome = outcome_of(answer.status)
        if self._probes and (probe := self._probe_of(runs)) is not None:
            self._probed[probe] = self._probed.get(probe, False) or outcome is Outcome.ANSWERED
            self._urgent.set()
        elif target.target_id not in self._open and self.health.heard(target, outcome, monotonic()):
            self._urgent.set()

    def probing(self, run: Run) -> None:
        """This run was let through."""
        probe = _Probe(run.target_id, self._open.get(run.target_id, 0))
        self._probes[run.schedule_id, run.at, run.attempt] = probe

    def _probe_of(self, runs: Sequence[Run]) -> _Probe | None:
        found = [self._probes.pop((run.schedule_id, run.at, run.attempt), None) for run in runs]
        return next((probe for probe in found if probe), None)

    async def run_once(self) -> BreakerReport:
        """Opens what is to open, reads the rows, acts on probes, lets probes through. Raises psycopg.Error; what is left is not lost."""
        opened = 0
        for target_id, suspect in self.health.ripe(monotonic()):
            opened += await self._open_one(target_id, suspect, monotonic())
        rows = await self._standing()
        self._follow(rows, monotonic())
        closed = await self._judge_probes()
        probes, idle = await self._let_through(rows, monotonic())
        judged = await self._judge_held()
        self.health.forget(monotonic())
        return BreakerReport(opened, closed + idle, probes, judged)

    async def _do(self, operation: Operation[T]) -> T:
        async with self._pool.connection() as connection, connection.transaction():
            return await drive_async(operation, connection)

    async def _standing(self) -> list[breakers.Standing]:
        """Each second of each runner, so without the two more statements of a transaction."""
        async with self._pool.connection() as connection:
            return await drive_async(breakers.standing(), connection)

    async def _open_one(self, target_id: int, suspect: Suspect, now_s: float) -> bool:
        openings = self.health.openings(target_id, now_s)
        pause_s = self._rules.pause(openings, random.random())
        did = await self._do(breakers.open_(target_id, suspect.reason, openings=openings, pause_s=pause_s))
        if did:
            warn("breaker_opened", target=suspect.name, reason=suspect.reason, openings=openings, probe_in_s=pause_s)
        self._has_opened(target_id, openings)
        return did

    def _has_opened(self, target_id: int, openings: int) -> None:
        self._open[target_id] = openings
        self.health.opened(target_id)
        for tell in self.on_open:
            tell(target_id)

    def _follow(self, rows: list[breakers.Standing], now_s: float) -> None:
        """Takes over what other runners, or people, have done."""
        standing = {row.target_id: row.openings for row in rows}
        for target_id, openings in list(self._open.items()):
            if target_id not in standing:
                self._has_closed(target_id, openings, now_s, proven=False)
        for target_id, openings in standing.items():
            if target_id not in self._open:
                self._has_opened(target_id, openings)
            self._open[target_id] = openings

    def _has_closed(self, target_id: int, openings: int, now_s: float, *, proven: bool) -> None:
        self._open.pop(target_id, None)
        self._look_at_s.pop(target_id, None)
        self._probes = {key: probe for key, probe in self._probes.items() if probe.target_id != target_id}
        self.health.closed(target_id, openings, now_s, proven=proven)

    async def _judge_probes(self) -> int:
        closed = 0
        for probe, answered in list(self._probed.items()):
            if answered:
                closed += await self._close(probe.target_id, "a probe was answered", proven=True)
            else:
                await self._reopen(probe)
            if self._probed[probe] == answered:  # else one was answered meanwhile, which the next turn sees
                del self._probed[probe]
        return closed

    async def _close(self, target_id: int, reason: str, *, proven: bool) -> bool:
        closed = await self._do(breakers.close(target_id))
        if closed is None:
            return False
        name = closed.target or "deleted"
        event("breaker_closed", target=name, reason=reason, openings=closed.openings, lasted_s=closed.lasted_s)
        self._has_closed(target_id, closed.openings, monotonic(), proven=proven)
        self._judging = holds.START
        return True

    async def _reopen(self, probe: _Probe) -> None:
        pause_s = self._rules.pause(probe.openings + 1, random.random())
        if name := await self._do(breakers.reopen(probe.target_id, openings=probe.openings, pause_s=pause_s)):
            event("breaker_probe_failed", target=name, openings=probe.openings + 1, probe_in_s=pause_s)

    async def _let_through(self, rows: list[breakers.Standing], now_s: float) -> tuple[int, int]:
        """(probes that go, breakers that closed for want of any)."""
        probes = closed = 0
        for row in rows:
            if row.due and row.target_id in self._open and now_s >= self._look_at_s.get(row.target_id, 0.0):
                pause_s = self._rules.pause(row.openings, random.random())
                found = await self._do(breakers.half_open(row.target_id, probes=self._rules.probes, pause_s=pause_s))
                if found is None:
                    continue
                probes += found.probes
                if not found.probes and found.due_s > self._rules.idle_s:
                    closed += await self._close(row.target_id, "nothing to probe with", proven=False)
                elif not found.probes:
                    self._look_at_s[row.target_id] = now_s + self._rules.look_s * random.uniform(0.7, 1.0)
        if probes:
            self._freed()
        return probes, closed

    async def _judge_held(self) -> int:
        """One step of the release of what a closed breaker held."""
        if self._judging is None:
            return 0
        step = await self._do(holds.judge(self._judging))
        self._judging = step.after
        if step.counts.runs:
            self._freed()
        return step.counts.runs

    def _freed(self) -> None:
        for tell in self.on_freed:
            tell()

    async def pause(self) -> None:
        """Until there is something to do."""
        self._outage.recovered()
        if self._judging is not None:
            return
        wait_s = self._rules.poll_s * random.uniform(0.7, 1.0)  # so that runners do not look in step
        if self.health.suspects:
            wait_s = min(wait_s, self._rules.doubt_s)
        self.health.sleeps(monotonic() + wait_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._urgent.wait()
        except TimeoutError:
            pass
        self.health.wakes(monotonic())
        self._urgent.clear()

    async def survive(self, error: psycopg.Error) -> None:
        """Notes a failure and waits a little."""
        await asyncio.sleep(self._outage.failed(error))
