"""Step 4 of 5 for targets that take many runs a request: collects, sends, and gives each run its part of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bucketd.runner.admission import Admission
from bucketd.runner.batch_answer import by_answer
from bucketd.runner.call import READ_BYTES, Answer, Caller
from bucketd.runner.collector import Collector
from bucketd.runner.request import headers_of, timeout_s
from bucketd.runner.run import Run
from bucketd.runner.shares import Pace
from bucketd.store.clock import monotonic
from bucketd.store.runners import CallTarget

IN_FLIGHT = 8  # requests a target; with the bound on open runs and bytes this bounds memory
REPORT_BYTES = 256  # of an answer, for each run of the request, beyond those of any answer


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
        begun: Callable[[Sequence[Run], float], None],
        heard: Callable[[list[Run], CallTarget, Answer], None],
        done: Callable[[list[Run], CallTarget, Answer], None],
    ) -> None:
        self.target = target
        self._caller = caller
        self._spawn = spawn
        self._admission = admission
        self._may_begin = may_begin
        self._begun = begun
        self._heard = heard
        self._done = done
        self._ready = Collector(target)
        self._counted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pace = Pace()

    @property
    def in_flight(self) -> int:
        """Requests on their way."""
        return self._pace.in_flight

    @property
    def open(self) -> int:
        """Runs in requests and in queues that fill one, at most."""
        return self.in_flight * self.target.batch_max + self._ready.crowd

    def places(self, now: float) -> int | None:
        """How many more runs could begin soon; None: as many as may come, requests are answered soon."""
        if not self._pace.is_slow(now):
            return None
        return max(0, (self._most() - self.in_flight) * self.target.batch_max - self._ready.crowd)

    def _most(self) -> int:
        """Requests at once: so many runs may be in them."""
        return max(1, min(IN_FLIGHT, self._admission.share // self.target.batch_max))

    def add(self, target: CallTarget, runs: list[Run]) -> None:
        """Queues these runs."""
        now = monotonic()
        if target is not self.target:
            self.target = target
            self._ready.aim(target, now)
        self._ready.add(runs, now)
        self.pump()

    def pump(self) -> None:
        """Begins as many requests as may be in flight, if the lease is believed and the runner goes on."""
        most = self._most()
        while self.in_flight < most and self._may_begin():
            now = monotonic()
            taken = self._ready.take(now, pressed=self._admission.under_pressure)
            if taken is None:
                break
            batch, waited_s = taken
            self._admission.waited(waited_s)
            self._begun(batch, now)
            self._spawn(self._call(batch, self._pace.begin(now)))
        self._count()
        self._set_timer()

    def _count(self) -> None:
        """Runs that linger on purpose do not count as waiting: they may not keep others out."""
        if self._ready.crowd != self._counted:
            change, self._counted = self._ready.crowd - self._counted, self._ready.crowd
            self._admission.queued(change)

    def _set_timer(self) -> None:
        due_at = self._ready.due_at()
        if due_at is not None and self._timer is None and self.in_flight < self._most():
            self._timer = asyncio.get_running_loop().call_later(max(0.001, due_at - monotonic()), self._rung)

    def _rung(self) -> None:
        self._timer = None
        self.pump()

    async def _call(self, batch: list[Run], token: int) -> None:
        try:
            first = batch[0]
            content = f"[{','.join([run.body for run in batch])}]".encode()
            batch_id = f"batch_{first.claim.number:016x}_{first.run_id}_{first.attempt}"
            headers = headers_of(self.target, batch_id, content, self._caller.now_s())
            headers["bucketd-batch"] = str(len(batch))
            limit_s = max([timeout_s(own_s, self.target) for own_s in {run.timeout_s for run in batch}])
            report_bytes = READ_BYTES + REPORT_BYTES * len(batch)
            answer = await self._caller.post(self.target, content, headers, limit_s, report_bytes)
            self._heard(batch, self.target, answer)
            for own, runs in by_answer(batch, answer):
                self._done(runs, self.target, own)
        finally:
            self._pace.end(token, monotonic())
            self.pump()

    def take_back(self, waited_s: float) -> list[Run]:
        """Removes the runs that wait for their request, if the oldest has waited so long beyond the linger time; 0: all."""
        found = self._ready.take_late(monotonic(), waited_s) if waited_s else self._ready.take_all()
        self._count()
        return found

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
