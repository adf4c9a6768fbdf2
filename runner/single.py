"""Step 4 of 5 for targets that take one run a request: which call begins next.

Turns go round tenants and their targets (turns.py), each host has its share of the concurrency (shares.py), and what cannot begin
soon is turned away at once instead of filling what waits here: a host that hangs, or a tenant with very many runs, keeps nobody out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from bucketd.runner.admission import Admission
from bucketd.runner.call import Answer, Caller
from bucketd.runner.cancel import Cancellations
from bucketd.runner.headroom import Headroom
from bucketd.runner.request import request_of, timeout_s
from bucketd.runner.run import Run
from bucketd.runner.shares import ALONE_S, Shares
from bucketd.runner.turns import Turns, Waiting
from bucketd.store.clock import monotonic
from bucketd.store.results import TARGET_BUSY, TENANT_BUSY
from bucketd.store.runners import CallTarget

ENDED = Answer(None, "its run was ended")  # its row is final, so this is fenced like any late outcome


class SingleCalls:
    """The lane of targets that take one run a request: at most `concurrency` in flight."""

    def __init__(
        self,
        concurrency: int,
        *,
        caller: Caller,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        admission: Admission,
        cancellations: Cancellations,
        may_begin: Callable[[], bool],
        begun: Callable[[Sequence[Run], float], None],
        heard: Callable[[list[Run], CallTarget, Answer], None],
        done: Callable[[list[Run], CallTarget, Answer], None],
        turn_away: Callable[[list[Run], str], None],
        headroom: Headroom,
    ) -> None:
        self._concurrency = concurrency
        self._caller = caller
        self._spawn = spawn
        self._admission = admission
        self._cancellations = cancellations
        self._may_begin = may_begin
        self._begun = begun
        self._heard = heard
        self._done = done
        self._turn_away = turn_away
        self._shares = Shares(concurrency)
        self._turns = Turns()
        self._headroom = headroom
        self._of_tenant: Counter[str] = Counter()  # calls in flight
        self._last_tenant = ""
        self._others_at = float("-inf")  # when another tenant came than just before

    @property
    def in_flight(self) -> int:
        """Calls on their way."""
        return self._shares.in_flight

    @property
    def background(self) -> int:
        """Background runs that wait here."""
        return self._turns.background

    def host(self, target: CallTarget) -> str:
        """The host of a target, with its port."""
        return _host(target.url)

    def room_of(self, host: str, now: float) -> int:
        """How many more runs of a host may wait here: if it is slow, those that may begin."""
        room, window = self._shares.room(host, now), self._admission.window
        if not self._shares.is_slow(host, now):
            room += window * 3 // 4
        return room - self._turns.of_host[host]

    def room_of_tenant(self, tenant: str, now: float) -> int:
        """How many more runs of a tenant may wait here: beside others half of all."""
        window = self._admission.window
        return (window if self._alone(tenant, now) else window // 2) - self._turns.of_tenant[tenant]

    def places_of_tenant(self, tenant: str, now: float) -> int:
        """How many runs of a tenant that has rows waiting may be taken: as many as begin at once, beside others."""
        room = self.room_of_tenant(tenant, now)
        return room if self._alone(tenant, now) else min(room, self._calls_left(tenant) - self._turns.of_tenant[tenant])

    def _alone(self, tenant: str, now: float) -> bool:
        return tenant == self._last_tenant and now - self._others_at > ALONE_S

    def _calls_left(self, tenant: str) -> int:
        return self._headroom.allowance - self._of_tenant[tenant]

    def add(self, target: CallTarget, runs: list[Run]) -> None:
        """Queues these runs; those that could not begin soon are turned away."""
        now = monotonic()
        host = _host(target.url)
        away: dict[str, list[Run]] = {}
        for run in runs:
            if run.tenant != self._last_tenant:
                self._others_at = now if self._last_tenant else self._others_at
                self._last_tenant = run.tenant
            reason = self._refusal(host, run.tenant, now)
            if reason is None:
                self._turns.add(Waiting(now, run, target, host))
            else:
                away.setdefault(reason, []).append(run)
        self._admission.queued(len(runs) - sum(len(refused) for refused in away.values()))
        self.pump()
        for reason, refused in away.items():
            self._turn_away(refused, reason)

    def _refusal(self, host: str, tenant: str, now: float) -> str | None:
        """The tenant first: a crowd may not fill what its targets' other tenants wait in."""
        if self.room_of_tenant(tenant, now) <= 0:
            return TENANT_BUSY
        return TARGET_BUSY if self.room_of(host, now) <= 0 else None

    def pump(self) -> None:
        """Begins as many calls as may be in flight, if the lease is believed and the runner goes on."""
        while self._turns.size and self.in_flight < self._concurrency and self._may_begin():
            now = monotonic()
            item = self._turns.next(
                lambda tenant, now=now: self._calls_left(tenant) > 0 or self._alone(tenant, now),  # type: ignore[misc]
                lambda host, now=now: self._shares.room(host, now) > 0,  # type: ignore[misc]
            )
            if item is None:
                return
            self._of_tenant[item.run.tenant] += 1
            self._headroom.begun(self.in_flight)
            self._admission.waited(now - item.since)
            self._begun((item.run,), now)
            self._admission.queued(-1)
            self._spawn(self._call(item, self._shares.begin(item.host, now)))

    async def _call(self, item: Waiting, token: int) -> None:
        run, target = item.run, item.target
        try:
            answer = await self._answer(run, target)
            self._done([run], target, answer)
        finally:
            self._cancellations.ended(run)
            self._shares.end(item.host, token, monotonic())
            self._ended(run.tenant)
            self.pump()

    def _ended(self, tenant: str) -> None:
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    async def _answer(self, run: Run, target: CallTarget) -> Answer:
        call = asyncio.current_task()
        assert call is not None
        if not self._cancellations.wants(run):  # guard: ended-run
            return ENDED
        self._cancellations.begun(run, call)
        try:
            content, headers = request_of(run, target, self._caller.now_s())
            answer = await self._caller.post(target, content, headers, timeout_s(run.timeout_s, target))
            self._heard([run], target, answer)
            return answer
        except asyncio.CancelledError:
            if self._cancellations.wants(run):
                raise
            call.uncancel()  # the run was ended, not this runner
            return ENDED

    def take_back(self, waited_s: float) -> list[Run]:
        """Removes the runs that have waited so long for their call."""
        return self._taken_back(self._turns.take_back(monotonic() - waited_s))

    def take_back_slow(self, waited_s: float) -> list[Run]:
        """The same of runs whose host has become slow and has no room."""
        now = monotonic()
        slow = {
            host
            for host in self._turns.of_host
            if self._shares.is_slow(host, now) and self._shares.room(host, now) <= 0
        }
        return self._taken_back(self._turns.take_back(now - waited_s, lambda item: item.host in slow)) if slow else []

    def take_back_of(self, target_id: int) -> list[Run]:
        """Removes the runs of this target that wait for their call."""
        return self._taken_back(self._turns.take_back(monotonic(), lambda item: item.target.target_id == target_id))

    def _taken_back(self, found: list[Run]) -> list[Run]:
        self._admission.queued(-len(found))
        return found


@lru_cache(maxsize=4096)
def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()
