"""Step 4 of 5 for targets that take one run a request: which call begins next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from bucketd.runner.admission import Admission
from bucketd.runner.call import Answer, Caller
from bucketd.runner.request import headers_of, timeout_s
from bucketd.runner.run import Run
from bucketd.store.clock import monotonic
from bucketd.store.runners import CallTarget


class SingleCalls:
    """The lane of targets that take one run a request: at most `concurrency` in flight, oldest first."""

    def __init__(
        self,
        concurrency: int,
        *,
        caller: Caller,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        admission: Admission,
        may_begin: Callable[[], bool],
        done: Callable[[list[Run], CallTarget, Answer], None],
    ) -> None:
        self._concurrency = concurrency
        self._caller = caller
        self._spawn = spawn
        self._admission = admission
        self._may_begin = may_begin
        self._done = done
        self._ready: deque[tuple[float, Run, CallTarget]] = deque()
        self.in_flight = 0

    def add(self, target: CallTarget, runs: list[Run]) -> None:
        """Queues these runs."""
        now = monotonic()
        self._ready.extend((now, run, target) for run in runs)
        self._admission.queued(len(runs))
        self.pump()

    def pump(self) -> None:
        """Begins as many calls as may be in flight, if the lease is believed and the runner goes on."""
        while self._ready and self.in_flight < self._concurrency and self._may_begin():
            since, run, target = self._ready.popleft()
            self.in_flight += 1
            self._admission.waited(monotonic() - since)
            self._admission.queued(-1)
            self._spawn(self._call(run, target))

    async def _call(self, run: Run, target: CallTarget) -> None:
        try:
            headers = headers_of(target, run.run_id)
            headers["bucketd-attempt"] = str(run.attempt)
            answer = await self._caller.post(target, run.body.encode(), headers, timeout_s(run.timeout_s, target))
            self._done([run], target, answer)
        finally:
            self.in_flight -= 1
            self.pump()

    def take_back(self, waited_s: float) -> list[Run]:
        """Removes the runs that have waited so long for their call."""
        found = []
        before = monotonic() - waited_s
        while self._ready and self._ready[0][0] <= before:
            found.append(self._ready.popleft()[1])
        self._admission.queued(-len(found))
        return found
