"""Where claimed runs go: one lane for single calls, one for each batch target."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from bucketd.runner.admission import Admission
from bucketd.runner.batch import BatchCalls
from bucketd.runner.call import Caller
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.result import Results
from bucketd.runner.run import Run
from bucketd.runner.single import SingleCalls
from bucketd.runner.targets import Targets

STALE_S = (
    4.0  # a claimed run whose call has not begun by then goes back: a pause or deletion must not be overtaken by 5 s
)


class Lanes:
    """Hands runs to their lane, and takes them back."""

    def __init__(
        self,
        concurrency: int,
        *,
        caller: Caller,
        group: asyncio.TaskGroup,
        admission: Admission,
        heartbeat: Heartbeat,
        targets: Targets,
        results: Results,
    ) -> None:
        self._caller = caller
        self._group = group
        self._admission = admission
        self._heartbeat = heartbeat
        self._targets = targets
        self._results = results
        self._single = SingleCalls(
            concurrency,
            caller=caller,
            spawn=self._spawn,
            admission=admission,
            may_begin=self._may_begin,
            done=results.done,
        )
        self._batch: dict[int, BatchCalls] = {}  # bounded by the number of batch targets that exist
        self._calls: set[asyncio.Task[None]] = set()
        self._closed = False

    def _may_begin(self) -> bool:
        return not self._closed and self._heartbeat.believed()

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(self._guarded(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _guarded(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except Exception:
            self._closed = True  # the runner ends with this error: no other call begins
            raise

    @property
    def in_flight(self) -> int:
        """Requests on their way."""
        return self._single.in_flight + sum(lane.in_flight for lane in self._batch.values())

    async def dispatch(self, by_target: dict[int, list[Run]], revisions: dict[int, int]) -> None:
        """Queues claimed runs, with each target at least at the revision that the claiming statement saw (I11)."""
        await self._targets.need(revisions)
        for target_id, runs in by_target.items():
            target = self._targets.get(target_id)
            if self._closed or target is None:
                self._results.give_back(runs)
            elif runs[0].claim.incarnation.ended:
                self._admission.ended(len(runs))
            elif target.batch_max > 1:
                self._lane(target_id).add(target, runs)
            else:
                self._single.add(target, runs)

    def _lane(self, target_id: int) -> BatchCalls:
        lane = self._batch.get(target_id)
        if lane is None:
            target = self._targets.get(target_id)
            assert target is not None
            lane = self._batch[target_id] = BatchCalls(
                target,
                caller=self._caller,
                spawn=self._spawn,
                admission=self._admission,
                may_begin=self._may_begin,
                done=self._results.done,
            )
        return lane

    def pump(self) -> None:
        """Begins what may begin now."""
        self._single.pump()
        for lane in self._batch.values():
            lane.pump()

    def _take_back(self, waited_s: float) -> list[Run]:
        found = self._single.take_back(waited_s)
        for lane in self._batch.values():
            found += lane.take_back(waited_s)
        return found

    def lost(self) -> None:
        """The incarnation has ended: what was claimed and not called is somebody else's now."""
        self._admission.ended(len(self._take_back(0.0)))

    def give_back_stale(self) -> int:
        """Gives back what has waited STALE_S for its call; how many."""
        stale = self._take_back(STALE_S)
        if stale:
            self._results.give_back(stale)
        return len(stale)

    def close(self) -> int:
        """No call begins from now on; what waits is given back. How many."""
        self._closed = True
        waiting = self._take_back(0.0)
        if waiting:
            self._results.give_back(waiting)
        for lane in self._batch.values():
            lane.close()
        return len(waiting)

    async def finish(self, seconds: float) -> int:
        """Waits for the calls in flight; those that take longer are cut, and their outcome stays unknown. How many."""
        if not self._calls:
            return 0
        _, late = await asyncio.wait(self._calls, timeout=max(0.0, seconds))
        await cancel_all(late)
        return len(late)


async def cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels these tasks until they have ended.

    Once is not enough: asyncio.wait_for of Python 3.11, by which psycopg waits, loses a cancellation that arrives together with
    its result.
    """
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=1.0)
