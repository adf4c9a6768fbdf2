"""Reaping: what a dead runner held wakes again, and pauses that have ended are lifted. Keeps I7: no run stays with a runner that
is gone.

Never counts an attempt itself: whoever claims the run next does. If the process dies halfway, the claims are still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from bucketd.scheduler.cluster import Node
from bucketd.store import pauses, reap
from bucketd.store.clock import monotonic
from bucketd.store.log import event, warn

LIFT_AHEAD_S = 60.0  # beyond the horizon: a pause is lifted before its end, so that planning is in time
SCAN_S = 3_600  # period of the look for running rows without a claim ..
ORPHAN_S = 600.0  # .. of attempts that began so long ago
# After a change of Postgres's history each turn looks for them, whatever their age: runners had counted results that are lost.
HISTORY_S = 120.0


@dataclass(frozen=True, slots=True)
class Report:
    """Runners found dead, claims dissolved, runs that wake again (or were held by nothing and got their verdict)."""

    buried: int
    claims: int
    runs: int


class Reaper:
    """Any node may reap; two that meet lock different claims."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._scanned_at = monotonic()
        self._history = node.history
        self._changed_at = float("-inf")

    async def run_once(self) -> Report:
        """Marks runners without a heartbeat as dead and recovers the claims of all dead ones."""
        node = self._node
        async with node.pool.connection() as connection:
            buried = await reap.bury(connection, node.settings.runner_dead_after_s)
            for runner_id, host, pid in buried:
                warn("runner_dead", runner=runner_id.hex, host=host, pid=pid)
            claims = runs = 0
            while True:
                some, recovered = await reap.recover(connection)
                claims, runs = claims + some, runs + recovered
                if some < reap.CLAIMS:  # a full pass leaves more behind
                    break
            if stranded := await reap.free_stranded(connection):
                event("stranded_freed", runs=stranded)
                runs += stranded
            lifted = 0
            while (some := await pauses.lift(connection, node.settings.horizon_s + LIFT_AHEAD_S)) and some > 0:
                lifted += some
            if lifted:
                event("pauses_lifted", schedules=lifted)
            if self._is_new_history():
                runs += await self._free_orphans(connection, older_than_s=0.0)
            if monotonic() - self._scanned_at >= SCAN_S:
                self._scanned_at = monotonic()
                await self._free_orphans(connection, older_than_s=ORPHAN_S)
                await reap.forget(connection)
        if runs:
            event("runs_recovered", claims=claims, runs=runs)
            await node.redis.publish(node.keys.wake, b"reaped")
        node.count("recovered", runs)
        node.count("buried", len(buried))
        return Report(len(buried), claims, runs)

    def _is_new_history(self) -> bool:
        before, self._history = self._history, self._node.history
        if before is not None and before != self._history:
            self._changed_at = monotonic()
        return monotonic() - self._changed_at < HISTORY_S

    async def _free_orphans(self, connection: AsyncConnection[Any], *, older_than_s: float) -> int:
        orphans = await reap.orphans(connection, older_than_s=older_than_s)
        if orphans:
            warn("orphans_recovered", runs=orphans)
            self._node.count("orphaned", orphans)
        return orphans
