"""How many runs may be taken now. Everything the runner holds is bounded here (invariant I12).

Three bounds, the smallest wins:
- `ready` (claimed, call not begun) < window. A claimed run should be called at once: a pause or a deletion made now must not be
  overtaken by a call much later, and another runner may have room. So the window starts at the number of calls that can be in
  flight, doubles whenever everything ready was begun while fires had to wait, and halves when something waited a second; never
  above 2 confirm batches + concurrency. But while runs are turned away because their host or tenant has no place, a whole batch may
  be claimed: those that have one stand behind them.
- `open` (claimed, result not written) < 16 confirm batches + concurrency: what a slow target or a dead Postgres may leave here.
- bytes of bodies, by the running mean: 64 MiB open, 8 MiB a batch, whatever the payloads are.
"""

from __future__ import annotations

import asyncio

from bucketd.store.clock import monotonic
from bucketd.store.config import Settings

OPEN_BATCHES = 16
OPEN_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 8 * 1024 * 1024
LEAST_WINDOW = 16
WAITED_S = 1.0
TURNED_S = 1.0  # so long after a run was turned away, others that will be are expected


class Admission:
    """Counts runs by state and wakes who waits for room."""

    def __init__(self, settings: Settings) -> None:
        self._batch = settings.confirm_batch
        self._largest = 2 * settings.confirm_batch + settings.concurrency
        self._open_bound = OPEN_BATCHES * settings.confirm_batch + settings.concurrency
        self.window = min(settings.concurrency, self._largest)
        self.ready = 0
        self.open = 0
        self._reserved = 0
        self._mean_bytes = 512.0
        self._limited = False
        self._shrunk_at = 0.0
        self._turned_at = float("-inf")
        self._room = asyncio.Event()
        self._room.set()

    def room(self, wanted: int) -> int:
        """How many runs may be claimed now, at most `wanted`."""
        free = self.window - self.ready - self._reserved
        if free < wanted:
            self._limited = True
            if monotonic() - self._turned_at < TURNED_S:
                free = max(free, self._batch - self._reserved)
        held = self.open + self._reserved
        return max(
            0, min(wanted, free, self._open_bound - held, int(OPEN_BYTES / self._mean_bytes) - held, self._byte_batch())
        )

    def _byte_batch(self) -> int:
        return max(1, min(self._batch, int(BATCH_BYTES / self._mean_bytes)))

    @property
    def share(self) -> int:
        """How many open runs a batch target may have in its requests: a quarter of all."""
        return self._open_bound // 4

    @property
    def under_pressure(self) -> bool:
        """Whether what is open keeps new runs out: nobody should linger."""
        held = self.open + self._reserved
        return held * 2 > min(self._open_bound, OPEN_BYTES / self._mean_bytes)

    async def wait(self) -> None:
        """Until there may be room."""
        if self.room(1) < 1:
            self._room.clear()
            await self._room.wait()

    def release(self) -> None:
        """Wakes everybody who waits, room or not: the runner stops."""
        self._room.set()

    def reserve(self, runs: int) -> None:
        """A statement that may claim so many is on its way."""
        self._reserved += runs

    def claimed(self, reserved: int, runs: int, body_bytes: int) -> None:
        """That statement is resolved and claimed `runs` runs."""
        self._reserved -= reserved
        self.open += runs
        if self.ready == 0 and self._limited:
            self.window = min(self.window * 2, self._largest)
            self._limited = False
        if runs:
            self._mean_bytes += (body_bytes / runs - self._mean_bytes) * (
                1.0 if body_bytes / runs > self._mean_bytes else 0.1
            )
        self._changed()

    def queued(self, runs: int) -> None:
        """So many more (or fewer) runs wait for their call to begin."""
        self.ready += runs
        if runs < 0:
            self._changed()

    def waited(self, seconds: float) -> None:
        """A run that is begun now has waited so long."""
        now = monotonic()
        if seconds > WAITED_S and now - self._shrunk_at > WAITED_S:
            self.window = max(self.window // 2, LEAST_WINDOW)
            self._shrunk_at = now

    def turned_away(self) -> None:
        """Runs that were claimed found no place."""
        self._turned_at = monotonic()

    def ended(self, runs: int) -> None:
        """So many runs are written or given up."""
        self.open -= runs
        self._changed()

    def _changed(self) -> None:
        if not self._room.is_set() and self.room(1) > 0:
            self._room.set()
