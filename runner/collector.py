"""Which runs go together into the next request of a batch target. Decides only: no clock, no I/O.

Runs wait in one queue, or in one a tenant if the target wants requests of a single tenant. A queue is due when it is full, or
when its oldest run has waited the linger time; after a request it starts anew at the end of the line, so no tenant is passed
over however many runs another one has.
"""

from __future__ import annotations

from bucketd.runner.run import Run
from bucketd.store.runners import CallTarget

BODY_BYTES = 1024 * 1024  # a request is closed when it has grown so large (one run may be larger, alone)


class _Queue:
    __slots__ = ("runs", "since")

    def __init__(self, runs: list[Run], since: float) -> None:
        self.runs = runs
        self.since = since


class Collector:
    """Runs that wait for a request. All times are monotonic seconds."""

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self._queues: dict[str, _Queue] = {}  # none is empty; by `since`, the oldest first
        self._full: dict[str, None] = {}  # keys of queues that fill a request, in order of that
        self.crowd = 0  # runs in full queues: those that wait for room, and do not linger on purpose

    def aim(self, target: CallTarget, now: float) -> None:
        """The target as it is from now on."""
        before, self._target = self._target, target
        if (before.batch_max, before.batch_by_tenant) != (target.batch_max, target.batch_by_tenant):
            self.add(self.take_all(), now)

    def add(self, runs: list[Run], now: float) -> None:
        """These runs wait from now on."""
        if not self._target.batch_by_tenant:
            self._put("", runs, now)
            return
        of_tenant: dict[str, list[Run]] = {}
        for run in runs:
            of_tenant.setdefault(run.tenant, []).append(run)
        for tenant, own in of_tenant.items():
            self._put(tenant, own, now)

    def due_at(self) -> float | None:
        """When the next queue that is not full is due; None: nothing waits."""
        oldest = next(iter(self._queues.values()), None)
        return None if oldest is None else oldest.since + self._linger_s

    def take(self, now: float, *, pressed: bool) -> tuple[list[Run], float] | None:
        """Removes the runs of the next request, and says how many seconds they waited beyond the linger time; None: nothing is due.

        `pressed`: what waits is due, whatever it waits for. Whose time has come goes before who is full.
        """
        key = next(iter(self._queues), None)
        if key is None:
            return None
        if not pressed and now < self._queues[key].since + self._linger_s:
            key = next(iter(self._full), None)
            if key is None:
                return None
        since = self._queues[key].since
        waiting = self._remove(key)
        size = self._size(waiting)
        self._put(key, waiting[size:], now)
        return waiting[:size], now - since - self._linger_s

    def take_late(self, now: float, waited_s: float) -> list[Run]:
        """Removes all runs of queues whose oldest run has waited so long beyond the linger time."""
        before = now - waited_s - self._linger_s
        return self._empty([key for key, queue in self._queues.items() if queue.since <= before])

    def take_all(self) -> list[Run]:
        """Removes all runs."""
        return self._empty(list(self._queues))

    @property
    def _linger_s(self) -> float:
        return self._target.batch_linger_ms / 1000

    def _size(self, waiting: list[Run]) -> int:
        size = min(len(waiting), self._target.batch_max)
        while size > 1 and sum([len(run.body) for run in waiting[:size]]) > BODY_BYTES:
            size = (size + 1) // 2
        return size

    def _put(self, key: str, runs: list[Run], now: float) -> None:
        if not runs:
            return
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(list(runs), now)
        else:
            queue.runs += runs
        if key in self._full:
            self.crowd += len(runs)
        elif len(queue.runs) >= self._target.batch_max:
            self._full[key] = None
            self.crowd += len(queue.runs)

    def _remove(self, key: str) -> list[Run]:
        queue = self._queues.pop(key)
        if key in self._full:
            del self._full[key]
            self.crowd -= len(queue.runs)
        return queue.runs

    def _empty(self, keys: list[str]) -> list[Run]:
        return [run for key in keys for run in self._remove(key)]
