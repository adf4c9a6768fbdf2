"""The runner process: one TaskGroup owns every task, and the order of start and stop is written here, once.

Tasks: heartbeat, intake (of crowds and of others), reclaim, acknowledge, CONFIRMERS x confirm, wake, wake channel, cancel channel,
RESULT_WRITERS x result, breakers, tenants' caps, limits, headroom, hooks, upkeep (stale runs, lost claims, the log line), and one
task a call in flight.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import fields
from functools import partial
from typing import Any

import psycopg
from redis.exceptions import RedisError

from bucketd.runner.admission import Admission
from bucketd.runner.backlog import Acknowledger, Backlog
from bucketd.runner.breaker import Rules
from bucketd.runner.breakers import Breakers
from bucketd.runner.call import Caller
from bucketd.runner.cancel import Cancellations
from bucketd.runner.confirm import Confirmer
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.hooks import Hooks
from bucketd.runner.intake import CONNECTIONS, Intake, Reader, block_s
from bucketd.runner.lanes import Lanes, cancel_all
from bucketd.runner.meter import Meter, Parts
from bucketd.runner.outage import Outage
from bucketd.runner.result import Results
from bucketd.runner.run import ClaimBook, Incarnation
from bucketd.runner.targets import Targets
from bucketd.runner.tenants import TenantCaps
from bucketd.runner.wake import Waker
from bucketd.runner.watchdog import Watchdog
from bucketd.store import queues
from bucketd.store.allow_list import AllowList
from bucketd.store.claims import sweep_lost
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool, postgres_errors
from bucketd.store.endpoint import Watched, serving
from bucketd.store.keyring import KeyRing
from bucketd.store.keys import Keys
from bucketd.store.log import event, warn
from bucketd.store.migrate import require_current
from bucketd.store.redis_client import check_redis, make_redis
from bucketd.store.supervisor import Supervisor
from bucketd.store.timelines import OldPrimary, refuse_old

CONFIRMERS = 3  # statements at once: two keep Postgres busy while one is on its way
RESULT_WRITERS = 2
UPKEEP_CONNECTIONS = 3  # a release that is judged step by step must not keep a target waiting that a call needs
REPORT_S = 10.0
UPKEEP_S = 0.5
SWEEP_S = 10.0
CALLED_S = 300.0  # so long after Postgres lost commits, its claims may be of runs that were called and answered
SWEEP_OLDER_S = 20.0  # longer than a statement with its wait for a connection can be on its way


class Runner:
    """One runner. `run` is its whole life; `totals` counts what its services report."""

    def __init__(self, settings: Settings, *, breaker_rules: Rules | None = None) -> None:
        self.settings = settings
        self._breaker_rules = breaker_rules or Rules()
        self.totals: Counter[str] = Counter()
        self.meter = Meter(self.totals, settings.concurrency)
        self.started = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begins a graceful stop."""
        self._stopping.set()
        if self.started.is_set():
            self.waker.nudged.set()
            self.admission.release()

    async def run(self) -> None:
        """Runs until `stop`. Raises what says that a store is unfit or unreachable at the start; later outages are survived."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            try:
                async with asyncio.TaskGroup() as group:
                    self._build(group, stack)
                    await self._live(group)
            finally:
                await self._caller.close()

    async def _open(self, stack: AsyncExitStack) -> None:
        settings, meter = self.settings, self.meter
        watched = Watched("runner", meter.definitions, meter.read, meter.checks)
        await stack.enter_async_context(serving(settings.metrics_listen, watched))
        self._caller = Caller(AllowList.parse(settings.egress_allow))
        stack.push_async_callback(self._caller.close)
        watchdog = Watchdog(self._caller.earliest_deadline)
        stack.callback(watchdog.stop)
        watchdog.start()
        self._redis = make_redis(settings, connections=CONNECTIONS, blocking_s=block_s(settings))
        stack.push_async_callback(self._redis.aclose)
        with postgres_errors(settings):
            self._hot = await stack.enter_async_context(
                make_pool(settings, application="bucketd runner", size=CONFIRMERS + RESULT_WRITERS + 1, hot=True)
            )
            self._heart_pool = await stack.enter_async_context(
                make_pool(settings, application="bucketd runner heartbeat", size=1)
            )
            self._pool = await stack.enter_async_context(
                make_pool(settings, application="bucketd runner upkeep", size=UPKEEP_CONNECTIONS)
            )
            async with self._pool.connection() as connection:
                await require_current(connection)
        await check_redis(self._redis, settings)

    def _build(self, group: asyncio.TaskGroup, stack: AsyncExitStack) -> None:
        settings = self.settings
        self.admission = Admission(settings)
        self.book = ClaimBook()
        self.heartbeat = Heartbeat(settings, self._heart_pool, self._refuse_old)
        self.targets = Targets(self._pool, KeyRing(settings.secret_keys.get_secret_value()))
        self.cancellations = Cancellations(settings, self._redis)
        self.breakers = Breakers(self._pool, self._breaker_rules)
        self.results = Results(self._hot, admission=self.admission, book=self.book)
        self.tenants = TenantCaps(self._pool)
        self.hooks = Hooks(self._pool, self._caller, self.targets, settings.wake_poll_s)
        self.lanes = Lanes(
            settings,
            self._redis,
            caller=self._caller,
            group=group,
            admission=self.admission,
            heartbeat=self.heartbeat,
            targets=self.targets,
            cancellations=self.cancellations,
            breakers=self.breakers,
            tenants=self.tenants,
            results=self.results,
        )
        self.backlog = Backlog(2 * settings.confirm_batch, confirmers=CONFIRMERS)
        self.acknowledger = Acknowledger(self._redis)
        self.intake = Intake(settings, self._redis, self.backlog, self.acknowledger, self.heartbeat)
        claiming: dict[str, Any] = {
            "admission": self.admission,
            "heartbeat": self.heartbeat,
            "book": self.book,
            "cancellations": self.cancellations,
            "dispatch": self.lanes.dispatch,
        }
        self.confirmer = Confirmer(
            settings,
            self._hot,
            backlog=self.backlog,
            acknowledger=self.acknowledger,
            busy=self.lanes.places.busy,
            **claiming,
        )
        waking: dict[str, Any] = claiming | {
            "dispatch": partial(self.lanes.dispatch, overtaking=True),
            "room": self.lanes.room,
            "places": self.lanes.places,
            "probing": self.breakers.probing,
        }
        self.waker = Waker(settings, self._hot, self._redis, **waking)
        self.lanes.on_room = self.waker.nudged.set
        self.breakers.on_open.append(self.lanes.give_back_of)
        self.breakers.on_freed.append(self.waker.nudged.set)
        self.heartbeat.on_alive.append(self.lanes.pump)
        self.heartbeat.on_lost.append(self._lost)
        self.heartbeat.on_history.append(self.targets.forget)
        self._caller.now_s = self.heartbeat.clock.now
        self.meter.parts = Parts(
            self._caller,
            self.heartbeat,
            self.intake,
            self.lanes.lateness,
            self.state,
            works=lambda: self.started.is_set() and not self._stopping.is_set(),
        )

    async def _refuse_old(self, history: str) -> None:
        try:
            await refuse_old(self._redis, Keys(self.settings.redis_prefix), history)
        except OldPrimary:
            for pool in (self._hot, self._heart_pool, self._pool):
                await pool.drain()
            raise

    def _lost(self, incarnation: Incarnation) -> None:
        self.lanes.lost()
        self.totals["incarnations_lost"] += 1
        self.totals["claims_lost"] += self.book.drop(incarnation)

    async def _live(self, group: asyncio.TaskGroup) -> None:
        """Start: alive first, then results, calls, claims, and intake last. Stop: the other way round."""
        tasks: list[asyncio.Task[None]] = []

        def begin(*duties: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
            begun = [group.create_task(self._whole(duty)) for duty in duties]
            tasks.extend(begun)
            return begun

        try:
            await self._once_up(self.heartbeat.run_once, "heartbeat")
            await self._once_up(self.tenants.run_once, "tenant_caps")
            await self._serve(begin)
        except BaseException:
            await _end(tasks, grace_s=0.0)
            await self.lanes.finish(0.0)
            raise

    async def _whole(self, duty: Coroutine[Any, Any, None]) -> None:
        """A duty whose failure ends the runner: from that moment no call begins."""
        try:
            await duty
        except Exception:
            self.lanes.close()
            raise

    async def _serve(self, begin: Callable[..., list[asyncio.Task[None]]]) -> None:
        keepers = [self.heartbeat.run(), self.acknowledger.run(), self.waker.listen(), self._break(), self._upkeep()]
        keepers += [self.cancellations.listen(), self.cancellations.tell(), self.cancellations.watch(self._pool)]
        keepers += [self.tenants.run(), self.lanes.limits.run(self._count)]
        keepers += [self.hooks.run(self._count), self.lanes.headroom.run()]
        keepers += [self._write_results() for _ in range(RESULT_WRITERS)]
        supervisor = Supervisor.present()
        keepers.append(supervisor.keep_alive())
        keeping = begin(*keepers)
        claiming = begin(self._wake(), *(self._confirm() for _ in range(CONFIRMERS)))
        reading = begin(*map(self._intake, self.intake.readers), self._reclaim())
        event("runner_started", runner=self.heartbeat.current.runner_id, concurrency=self.settings.concurrency)
        self.started.set()
        supervisor.ready()
        await self._stopping.wait()
        supervisor.stopping()
        begun = monotonic()
        await _end(reading, grace_s=block_s(self.settings) + self.settings.redis_read_timeout_s)
        await _end(claiming, grace_s=self.settings.statement_timeout_s)
        returned = self.lanes.close()
        await self._drain(begun + self.settings.drain_timeout_s)
        await self._let_go()
        await _end(keeping, grace_s=0.0)
        await self._leave()
        fields_: dict[str, Any] = {**self.totals, "returned": returned, "took_s": monotonic() - begun}
        event("runner_stopped", **fields_)

    async def _once_up(self, step: Callable[[], Awaitable[object]], what: str) -> None:
        outage = Outage(what)
        while True:
            try:
                await step()
                outage.recovered()
                return
            except (psycopg.Error, RedisError) as error:
                await asyncio.sleep(outage.failed(error))

    async def _drain(self, until: float) -> None:
        """Calls finish and results are written; at the time-out the calls are cancelled, and their rows are the reaper's."""
        cut = await self.lanes.finish(until - monotonic())
        if cut:
            warn("drain_timeout", calls=cut)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until - monotonic(), self.settings.statement_timeout_s)):
                await self.results.empty.wait()

    async def _let_go(self) -> None:
        with suppress(RedisError, OSError):
            await self.lanes.limits.leave()
            await self.acknowledger.run_once()
            consumer = str(self.heartbeat.current.runner_id)
            await self.acknowledger.let_go(consumer, int(self.settings.reclaim_idle_s * 1000))
            await queues.remove_consumer(self._redis, consumer, Keys(self.settings.redis_prefix).queues)

    async def _leave(self) -> None:
        with suppress(psycopg.Error):  # the lease runs out by itself
            await self.heartbeat.leave()

    async def _intake(self, reader: Reader) -> None:
        room = self.backlog.room(crowd=reader.crowd)
        while not self._stopping.is_set():
            if not room.is_set():
                await self._either(room)
                continue
            try:
                self._count(await self.intake.run_once(reader))
            except RedisError as error:
                await self.intake.survive(error, reader)

    async def _reclaim(self) -> None:
        found = 0  # while a dead runner's messages last, the next look is at once
        while not self._stopping.is_set():
            if not found:
                await self._pause(self.intake.reclaim_pause_s())
            await self._either(self.backlog.room(crowd=False))
            if self._stopping.is_set():
                return
            try:
                report = await self.intake.reclaim_once()
                found = report.reclaimed
                self._count(report)
            except RedisError as error:
                found = 0
                await self.intake.survive(error)

    async def _confirm(self) -> None:
        while not self._stopping.is_set():
            await self._either(self.backlog.some)
            await self.admission.wait()
            if not self._stopping.is_set():
                self._count(await self.meter.timed("confirm", self.confirmer.run_once()))

    async def _wake(self) -> None:
        while not self._stopping.is_set():
            try:
                report = await self.meter.timed("wake", self.waker.run_once())
                self._count(report)
                await self.waker.pause(report)
            except psycopg.Error as error:
                await self.waker.survive(error)

    async def _break(self) -> None:
        while True:
            try:
                self._count(await self.breakers.run_once())
                await self.breakers.pause()
            except psycopg.Error as error:
                await self.breakers.survive(error)

    async def _write_results(self) -> None:
        while True:
            await self.results.wait()
            self._count(await self.meter.timed("result", self.results.run_once()))

    async def _upkeep(self) -> None:
        swept = reported = monotonic()
        outage = Outage("sweep")
        while True:
            await asyncio.sleep(UPKEEP_S)
            self.totals["stale"] += self.lanes.give_back_stale()
            now = monotonic()
            if now - reported >= REPORT_S:
                reported = now
                event("runner", **{**self.totals, **self.state()})
            if now - swept >= SWEEP_S and self.heartbeat.believed():
                swept = now
                try:
                    await self._sweep()
                    outage.recovered()
                except psycopg.Error as error:
                    outage.failed(error)

    async def _sweep(self) -> None:
        async with self._pool.connection() as connection:
            known = self.book.numbers()
            runner_id = self.heartbeat.current.runner_id
            called = monotonic() - self.heartbeat.changed_at < CALLED_S
            claims, runs = await sweep_lost(connection, runner_id, known, older_than_s=SWEEP_OLDER_S, called=called)
        self.totals["claims_swept"] += claims
        self.totals["runs_swept"] += runs

    def state(self) -> dict[str, int]:
        """What is held now."""
        return {
            "fires_waiting": self.backlog.size,
            "messages_held": self.acknowledger.held,
            "ready": self.admission.ready,
            "open": self.admission.open,
            "in_flight": self.lanes.in_flight,
            "window": self.admission.window,
        }

    def _count(self, report: Any) -> None:
        for item in fields(report):
            value = getattr(report, item.name)
            if isinstance(value, Counter):
                self.totals.update({f"{item.name}_{key}": number for key, number in value.items()})
            else:
                self.totals[item.name] += int(value)

    async def _either(self, condition: asyncio.Event) -> None:
        """Until the condition, or the stop."""
        if condition.is_set() or self._stopping.is_set():
            return
        waits = [asyncio.ensure_future(condition.wait()), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


async def _end(tasks: list[asyncio.Task[Any]], *, grace_s: float) -> None:
    """Lets the tasks end by themselves for a while, then cancels them; returns when they have ended."""
    pending = set(tasks)
    if pending and grace_s:
        _, pending = await asyncio.wait(pending, timeout=grace_s)
    await cancel_all(pending)
