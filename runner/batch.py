"""Step 4 of 5 for targets that take many runs a request: collects, sends, and gives each run the request's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bucketd.runner.admission import Admission
from bucketd.runner.call import Answer, Caller
from bucketd.runner.request import headers_of, timeout_s
from bucketd.runner.run import Run
from bucketd.store.clock import monotonic
from bucketd.store.runners import CallTarget

IN_FLIGHT = 8  # requests a target; with the bound on open runs and bytes this bounds memory
BODY_BYTES = 1024 * 1024  # a request is closed when it has grown so large (one run may be larger, alone)


class BatchCalls:
    """The lane of one batch target: a request goes at `batch_max` runs, or when the oldest has waited `batch_linger_ms`."""

    def __init__(
        self,
        target: CallTarget,
        *,
        caller: Caller,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        admission: Admission,
        may_begin: Callable[[], bool],
        done: Callable[[list[Run], CallTarget, Answer], None],
    ) -> None:
        self.target = target
        self._caller = caller
        self._spawn = spawn
        self._admission = admission
        self._may_begin = may_begin
        self._done = done
        self._ready: list[Run] = []
        self._since = 0.0
        self._counted = 0
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    def add(self, target: CallTarget, runs: list[Run]) -> None:
        """Queues these runs."""
        self.target = target
        if not self._ready:
            self._since = monotonic()
        self._ready += runs
        self.pump()

    def pump(self) -> None:
        """Begins as many requests as may be in flight, if the lease is believed and the runner goes on."""
        while self.in_flight < IN_FLIGHT and self._is_due() and self._may_begin():
            size = self._next_size()
            batch, self._ready = self._ready[:size], self._ready[size:]
            self._admission.waited(monotonic() - self._since - self.target.batch_linger_ms / 1000)
            self._since = monotonic()
            self.in_flight += 1
            self._spawn(self._call(batch))
        self._count()
        self._set_timer()

    def _is_due(self) -> bool:
        if len(self._ready) >= self.target.batch_max or (self._ready and self._admission.under_pressure):
            return True
        return bool(self._ready) and monotonic() >= self._since + self.target.batch_linger_ms / 1000

    def _next_size(self) -> int:
        size = min(len(self._ready), self.target.batch_max)
        while size > 1 and sum([len(run.body) for run in self._ready[:size]]) > BODY_BYTES:
            size = (size + 1) // 2
        return size

    def _count(self) -> None:
        """Runs that linger on purpose do not count as waiting: they may not keep others out."""
        waiting = len(self._ready) if len(self._ready) >= self.target.batch_max else 0
        if waiting != self._counted:
            change, self._counted = waiting - self._counted, waiting
            self._admission.queued(change)

    def _set_timer(self) -> None:
        if self._ready and self._timer is None and self.in_flight < IN_FLIGHT:
            wait_s = max(0.001, self._since + self.target.batch_linger_ms / 1000 - monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._rung)

    def _rung(self) -> None:
        self._timer = None
        self.pump()

    async def _call(self, batch: list[Run]) -> None:
        try:
            first = batch[0]
            headers = headers_of(self.target, f"batch_{first.claim.number:016x}_{first.run_id}_{first.attempt}")
            headers["bucketd-batch"] = str(len(batch))
            content = f"[{','.join([run.body for run in batch])}]".encode()
            limit_s = max([timeout_s(own_s, self.target) for own_s in {run.timeout_s for run in batch}])
            answer = await self._caller.post(self.target, content, headers, limit_s)
            self._done(batch, self.target, answer)
        finally:
            self.in_flight -= 1
            self.pump()

    def take_back(self, waited_s: float) -> list[Run]:
        """Removes the runs that wait for their request, if the oldest has waited so long beyond the linger time."""
        if not self._ready or monotonic() - self._since < waited_s + self.target.batch_linger_ms / 1000 * bool(
            waited_s
        ):
            return []
        found, self._ready = self._ready, []
        self._count()
        return found

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
