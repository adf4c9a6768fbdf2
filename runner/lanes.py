"""Where claimed runs go: behind older ones that wait as rows, through the limits, into the lane of single calls or of their batch
target; and back into their rows where there is no place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from redis.asyncio import Redis

from bucketd.runner.admission import Admission
from bucketd.runner.batch import BatchCalls
from bucketd.runner.breakers import Breakers
from bucketd.runner.call import Answer, Caller
from bucketd.runner.cancel import Cancellations
from bucketd.runner.headroom import Headroom
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.lateness import Lateness
from bucketd.runner.limits import Limits
from bucketd.runner.places import Places
from bucketd.runner.result import Results
from bucketd.runner.run import Run
from bucketd.runner.single import SingleCalls
from bucketd.runner.targets import Targets
from bucketd.runner.tenants import TenantCaps
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.results import TARGET_BUSY
from bucketd.store.runners import CallTarget
from bucketd.store.wake import Room

STALE_S = (
    4.0  # a claimed run whose call has not begun by then goes back: a pause or deletion must not be overtaken by 5 s
)
ASKING_S = 0.4  # a place that took longer to get is given back: together with STALE_S and a look it stays below 5 s
SLOW_WAIT_S = 0.25  # what waits for a host that has become slow goes back into its row after this
NUDGE_S = 0.02  # places that come free within this time are filled by one statement


class Lanes:
    """Hands runs to their lane, and takes them back."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        *,
        caller: Caller,
        group: asyncio.TaskGroup,
        admission: Admission,
        heartbeat: Heartbeat,
        targets: Targets,
        cancellations: Cancellations,
        breakers: Breakers,
        tenants: TenantCaps,
        results: Results,
    ) -> None:
        self._caller = caller
        self._group = group
        self._admission = admission
        self._heartbeat = heartbeat
        self._targets = targets
        self._breakers = breakers
        self._results = results
        self.headroom = Headroom(settings.concurrency)
        self.lateness = Lateness()
        self._single = SingleCalls(
            settings.concurrency,
            caller=caller,
            spawn=self._spawn,
            admission=admission,
            cancellations=cancellations,
            may_begin=self._may_begin,
            begun=self.lateness.begun,
            heard=breakers.heard,
            done=self._done,
            turn_away=self._turn_away,
            headroom=self.headroom,
        )
        self._batch: dict[int, BatchCalls] = {}  # bounded by the number of batch targets that exist
        self.limits = Limits(
            settings,
            redis,
            tenants,
            placed=self._placed,
            unplaced=self._unplaced,
            on_left=self._tell_room,
            stale_s=ASKING_S,
        )
        self.places = Places(
            targets=targets, limits=self.limits, single=self._single, batch=self._batch, open_share=admission.share
        )
        self.on_room: Callable[[], None] = lambda: None  # places came free for which rows wait
        self._nudge: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._closed = False

    def _may_begin(self) -> bool:
        return not self._closed and self._heartbeat.believed()  # guard: lease-before-call

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

    async def dispatch(
        self, by_target: dict[int, list[Run]], revisions: dict[int, int], *, overtaking: bool = False
    ) -> None:
        """Queues claimed runs, with each target at least at the revision that the claiming statement saw (I11).

        `overtaking`: they need not stand behind rows that wait for a place: they did.
        """
        await self._targets.need(revisions)  # guard: target-revision
        for target_id, runs in by_target.items():
            target = self._targets.get(target_id)
            if self._closed or target is None:
                self._results.give_back(runs)
            elif runs[0].claim.incarnation.ended:
                self._admission.ended(len(runs))
            else:
                first = runs if overtaking or not self.places else self._behind(target, runs)
                self._begin(target, self._unlimited(target, first) if self.limits.are_on(target) else first)

    def _behind(self, target: CallTarget, runs: list[Run]) -> list[Run]:
        """Those of these new runs that overtake nobody; the others go behind what waits."""
        free = []
        behind: dict[str, list[Run]] = {}
        for run in runs:
            reason = self.places.waits(target, run.tenant)
            if reason is None:
                free.append(run)
            else:
                behind.setdefault(reason, []).append(run)
        for reason, others in behind.items():
            self._turn_away(others, reason)
        return free

    def _unlimited(self, target: CallTarget, runs: list[Run]) -> list[Run]:
        """Those of these runs that no limit concerns; the others ask for a place."""
        of_tenant: dict[str, list[Run]] = {}
        for run in runs:
            of_tenant.setdefault(run.tenant, []).append(run)
        free = []
        for tenant, own in of_tenant.items():
            if limits := self.limits.of(target, tenant):
                self._admission.queued(len(own))
                self.limits.offer(target, own, limits)
            else:
                free += own
        return free

    def _placed(self, target: CallTarget, runs: list[Run]) -> None:
        self._admission.queued(-len(runs))
        if self._closed or runs[0].claim.incarnation.ended:
            self.limits.ended(runs)
            self._results.give_back(runs)  # an ended incarnation's are dropped there
        else:
            self._begin(target, runs)

    def _unplaced(self, runs: list[Run], reason: str) -> None:
        self._admission.queued(-len(runs))
        self._turn_away(runs, reason)

    def _begin(self, target: CallTarget, runs: list[Run]) -> None:
        """Into their lane, as many as could begin soon."""
        if target.batch_max <= 1:
            self._single.add(target, runs)
            return
        places = self.places.of_batch(target.target_id)
        if places is not None and places < len(runs):
            self._turn_away(runs[places:], TARGET_BUSY)
            runs = runs[:places]
        if runs:
            self._lane(target.target_id).add(target, runs)

    def _turn_away(self, runs: list[Run], reason: str) -> None:
        """Back into their rows, until there is a place."""
        for target_id, tenant in {(run.target_id, run.tenant) for run in runs}:
            self.places.turned_away(target_id, tenant, reason)
        self._admission.turned_away()
        self.limits.ended(runs)
        self._results.defer(runs, reason)

    def _done(self, runs: list[Run], target: CallTarget, answer: Answer) -> None:
        self._results.done(runs, target, answer)
        self.limits.ended(runs)
        if self.places:
            self._tell_room()

    def _tell_room(self) -> None:
        if self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(NUDGE_S, self._nudged)

    def _nudged(self) -> None:
        self._nudge = None
        self.on_room()

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
                begun=self.lateness.begun,
                heard=self._breakers.heard,
                done=self._done,
            )
        return lane

    def pump(self) -> None:
        """Begins what may begin now."""
        self._single.pump()
        for lane in self._batch.values():
            lane.pump()

    def room(self, wanted: int) -> Room:
        """What may be claimed now of rows that wait: at most `wanted`, and of background ones a quarter of what may be ready."""
        total = self._admission.room(wanted)
        background = max(1, self._admission.window // 4 - self._single.background)
        return self.places.room(total, background)

    def _take_back(self, waited_s: float) -> list[Run]:
        """What has waited so long for its call; 0: all that has not begun."""
        found = self._single.take_back(waited_s)
        for lane in self._batch.values():
            found += lane.take_back(waited_s)
        if not waited_s:
            asking = self.limits.withdraw()
            self._admission.queued(-len(asking))
            found += asking
        self.limits.ended(found)
        return found

    def lost(self) -> None:
        """The incarnation has ended: what was claimed and not called is somebody else's now."""
        self._admission.ended(len(self._take_back(0.0)))

    def give_back_stale(self) -> int:
        """What has waited STALE_S for its call, or for a host that has become slow, waits in its row from now on; how many."""
        now = monotonic()
        stale = self._take_back(STALE_S) + self._single.take_back_slow(SLOW_WAIT_S)
        for lane in self._batch.values():
            if lane.places(now) == 0:
                stale += lane.take_back(SLOW_WAIT_S)
        if stale:
            self._turn_away(stale, TARGET_BUSY)
        return len(stale)

    def give_back_of(self, target_id: int) -> None:
        """Gives back what waits for its call to this target."""
        lane = self._batch.get(target_id)
        found = self._single.take_back_of(target_id) + (lane.take_back(0.0) if lane else [])
        if found:
            self.limits.ended(found)
            self._results.give_back(found)

    def close(self) -> int:
        """No call begins from now on; what waits is given back. How many."""
        self._closed = True
        waiting = self._take_back(0.0)
        if waiting:
            self._results.give_back(waiting)
        for lane in self._batch.values():
            lane.close()
        if self._nudge is not None:
            self._nudge.cancel()
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
