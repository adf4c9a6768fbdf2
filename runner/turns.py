"""Whose turn it is: runs that wait for their call, tenants in turn, and of each tenant its targets in turn. Pure: no clock, no I/O.

So neither a tenant with many runs nor one with many targets comes more often than others. Live runs go before background ones
(catch-up, backfill), which get every eighth turn nevertheless: live work may never end. Bounded by admission.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from bucketd.runner.run import Run
from bucketd.store.runners import CallTarget

BACKGROUND_EVERY = 8


class Waiting(NamedTuple):
    """A run that waits for its call to a target, at that host, since then (monotonic seconds)."""

    since: float
    run: Run
    target: CallTarget
    host: str


class Round:
    """Runs of one urgency. No queue in it is empty."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[int, deque[Waiting]]] = {}  # whose turn it is stands first, in both

    def add(self, item: Waiting) -> None:
        queues = self._tenants.setdefault(item.run.tenant, {})
        queues.setdefault(item.run.target_id, deque()).append(item)

    def next(self, of: Callable[[str], bool], at: Callable[[str], bool]) -> Waiting | None:
        """Removes the run whose turn it is among those that may begin, by their tenant and by their host; None: there is none."""
        for tenant, queues in self._tenants.items():
            if not of(tenant):
                continue
            for target_id, queue in queues.items():
                if at(queue[0].host):
                    return self._take(tenant, target_id)
        return None

    def _take(self, tenant: str, target_id: int) -> Waiting:
        queues = self._tenants.pop(tenant)
        queue = queues.pop(target_id)
        item = queue.popleft()
        if queue:
            queues[target_id] = queue
        if queues:
            self._tenants[tenant] = queues
        return item

    def take_back(self, before: float, of: Callable[[Waiting], bool]) -> list[Waiting]:
        """Removes all of these that have waited since then."""
        found = []
        for tenant, queues in list(self._tenants.items()):
            for target_id, queue in list(queues.items()):
                while queue and queue[0].since <= before and of(queue[0]):
                    found.append(queue.popleft())
                if not queue:
                    del queues[target_id]
            if not queues:
                del self._tenants[tenant]
        return found


class Turns:
    """Both urgencies, and how many runs wait of whom."""

    def __init__(self) -> None:
        self._live, self._background = Round(), Round()
        self._turn = 0
        self.of_tenant: Counter[str] = Counter()
        self.of_host: Counter[str] = Counter()
        self.background = 0
        self.size = 0

    def add(self, item: Waiting) -> None:
        """This run waits from now on."""
        (self._background if item.run.background else self._live).add(item)
        self._count(item, 1)

    def next(self, of: Callable[[str], bool], at: Callable[[str], bool]) -> Waiting | None:
        """Removes the run whose turn it is among those that may begin, by their tenant and by their host; None: there is none."""
        if not self.size:
            return None
        first, second = self._live, self._background
        if (self._turn + 1) % BACKGROUND_EVERY == 0:
            first, second = second, first
        item = first.next(of, at) or second.next(of, at)
        if item is not None:
            self._turn += 1
            self._count(item, -1)
        return item

    def take_back(self, before: float, of: Callable[[Waiting], bool] = lambda item: True) -> list[Run]:
        """Removes all that have waited since then; `of`: of these, which says the same of all runs of a target."""
        found = self._live.take_back(before, of) + self._background.take_back(before, of)
        for item in found:
            self._count(item, -1)
        return [item.run for item in found]

    def _count(self, item: Waiting, change: int) -> None:
        self.size += change
        self.background += change * item.run.background
        for counter, key in ((self.of_tenant, item.run.tenant), (self.of_host, item.host)):
            counter[key] += change
            if not counter[key]:
                del counter[key]
