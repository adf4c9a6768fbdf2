"""A scheduler node: starts its services in one task group, listens for nudges, and hands over when it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from bucketd.scheduler.cluster import Node
from bucketd.scheduler.drainer import Drainer
from bucketd.scheduler.duty import on_beat, pause, repeat
from bucketd.scheduler.expander import Expander
from bucketd.scheduler.meter import Meter
from bucketd.scheduler.ownership import Ownership
from bucketd.scheduler.planner import Planner
from bucketd.scheduler.reaper import Reaper
from bucketd.scheduler.release import unfit
from bucketd.scheduler.retainer import Retainer
from bucketd.scheduler.settler import Settler
from bucketd.scheduler.surveyor import Surveyor
from bucketd.scheduler.zonekeeper import ZoneKeeper
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool, postgres_errors
from bucketd.store.endpoint import Watched, serving
from bucketd.store.errors import SchemaError
from bucketd.store.keys import Keys
from bucketd.store.log import event, warn
from bucketd.store.migrate import require_current
from bucketd.store.redis_client import check_redis, make_redis
from bucketd.store.retention import make_days
from bucketd.store.supervisor import Supervisor

# One a service that may be in Postgres at once: owner, planner, settler, expander, reaper, retainer, zone keeper; and one each
# for the locks of the last two ..
POOL = 9
WATCHED = 1  # .. and the surveyor of a node that is watched
LONG_STATEMENT_S = 30.0  # planning and settling ask for a whole minute at once
REAP_SHARE = 3  # looks for dead runners within the time that makes one dead
RETAIN_S = 600
EXPAND_S = 5.0  # between looks for backfills; a nudge or a window that settling owes cuts it short
ZONES_S = 10.0  # between looks for zones that nobody has named before ..
MOVING_S = 2.0  # .. and while schedules are to be moved to newer data
SURVEY_S = 15.0  # Prometheus's usual period: figures are no older than two scrapes
OTHERS_SURVEY_S = 2.0  # until a node looks whether it is its business now
LISTEN_S = 30.0  # a silent connection is given up and made again after this
SKEW_WARN_S = 0.25


class Scheduler:
    """One node with all its duties; `run` returns when it has left the ring."""

    def __init__(self, settings: Settings) -> None:
        long = settings.model_copy(update={"statement_timeout_s": max(settings.statement_timeout_s, LONG_STATEMENT_S)})
        self.node = Node(
            settings,
            make_pool(long, application="bucketd scheduler", size=POOL + WATCHED * bool(settings.metrics_listen), hot=True),
            make_redis(settings),
            Keys(settings.redis_prefix),
        )
        self.ownership = Ownership(self.node)
        self.planner = Planner(self.node, self.ownership)
        self.drainer = Drainer(self.node, self.ownership)
        self.settler = Settler(self.node, self.planner)
        self.expander = Expander(self.node, self.planner)
        self.reaper = Reaper(self.node)
        self.retainer = Retainer(self.node)
        self.zonekeeper = ZoneKeeper(self.node)
        self.surveyor = Surveyor(self.node)
        self.meter = Meter(self.node, self.ownership, self.planner, self.surveyor)
        self._unfit: SchemaError | None = None

    async def open(self) -> None:
        """Opens the pool and checks both stores. Raises SchemaError (tzdata that are older too), UnfitRedis, StoreUnavailable."""
        node = self.node
        with postgres_errors(node.settings):
            await node.pool.open(wait=True, timeout=10)
            async with node.pool.connection() as connection:
                await require_current(connection)
                # Else what falls due at the end of a long absence is refused.
                await make_days(connection, node.settings.days_ahead)
                await self.zonekeeper.admit(connection)
        await check_redis(node.redis, node.settings)

    async def close(self) -> None:
        """Closes what `open` opened."""
        await self.node.pool.close()
        await self.node.redis.aclose()

    async def run(self) -> None:
        """Works until `node.stop` is set, then hands over: the ring first, the rest while others already take over.

        Raises SchemaError, handed over as well, when the cluster goes over to newer tzdata.
        """
        node, supervisor = self.node, Supervisor.present()
        event("scheduler_started", node=node.id.hex)
        supervisor.ready()
        async with asyncio.TaskGroup() as group:
            alive = group.create_task(supervisor.keep_alive(), name="alive")
            duties = self._duties()
            for name, turn, wake in duties:
                loop = repeat(name, turn, node.stop, wake, exact=name == "drain", record=self.meter.record)
                group.create_task(loop, name=name)
            listener = group.create_task(self._listen(), name="listen")
            try:
                await node.stop.wait()
            finally:  # told to stop, or a duty has failed: psycopg may swallow a cancellation, a stop it does not
                node.stop.set()
                for _, _, wake in duties:
                    wake.set()
                listener.cancel()  # it may sit in a read; its connection is closed, not used again
            stopped_at = monotonic()
            supervisor.stopping()
            try:
                await self.ownership.leave()
            finally:
                alive.cancel()
        event("scheduler_stopped", node=node.id.hex, after_s=monotonic() - stopped_at)
        if self._unfit:
            raise self._unfit

    def _duties(self) -> list[tuple[str, Callable[[], Awaitable[float]], asyncio.Event]]:
        node, settings = self.node, self.node.settings

        async def own() -> float:
            await self.ownership.run_once()
            self._unfit = unfit(node.tzdata)
            if self._unfit:
                node.stop.set()
                return 0.0
            if abs(node.clock.skew_s()) > SKEW_WARN_S and not node.counts.get("skew_warned"):
                node.count("skew_warned")
                warn(
                    "clock_skew", ahead_s=node.clock.skew_s(), note="the cluster's clock is Postgres's; check NTP here"
                )
            return settings.lease_renew_s / 2

        async def plan() -> float:
            await self.planner.run_once()
            return settings.feed_poll_s

        async def drain() -> float:
            if not node.clock.synchronised:
                return 0.1
            pause_s = self.drainer.pause_s(report := await self.drainer.run_once())
            return on_beat(pause_s, monotonic()) if report.next_due_s is None else pause_s

        async def settle() -> float:
            if not node.clock.synchronised:
                return 0.1
            if (await self.settler.run_once()).owed:  # guard: settling
                node.wake_expander.set()
            return self.settler.pause_s()

        async def expand() -> float:
            report = await self.expander.run_once()
            return 0.2 if report.full else 0.0 if report.more else EXPAND_S

        async def reap() -> float:
            await self.reaper.run_once()
            return settings.runner_dead_after_s / REAP_SHARE

        async def retain() -> float:
            await self.retainer.run_once()
            return RETAIN_S

        async def zones() -> float:
            return MOVING_S if (await self.zonekeeper.run_once()).more else ZONES_S

        async def survey() -> float:
            return SURVEY_S if await self.surveyor.run_once() else OTHERS_SURVEY_S

        duties: list[tuple[str, Callable[[], Awaitable[float]], asyncio.Event]] = [
            ("own", own, node.wake_owner),
            ("plan", plan, node.wake_planner),
            ("drain", drain, node.wake_drainer),
            ("settle", settle, node.wake_settler),
            ("expand", expand, node.wake_expander),
            ("reap", reap, asyncio.Event()),
            ("retain", retain, asyncio.Event()),
            ("zones", zones, asyncio.Event()),
        ]
        return [*duties, ("survey", survey, asyncio.Event())] if settings.metrics_listen else duties

    async def _listen(self) -> None:
        """Nudges only make things immediate; a poll makes them sure. So a lost connection costs a second, not a fire."""
        node = self.node
        client = make_redis(node.settings, connections=2, blocking_s=LISTEN_S)
        try:
            while not node.stop.is_set():
                try:
                    async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                        await pubsub.subscribe(node.keys.nudge, node.keys.ring_changed)
                        await self._hear(pubsub)
                except (RedisError, OSError):
                    await pause(1.0, node.stop)
        finally:
            await client.aclose()

    async def _hear(self, pubsub: PubSub) -> None:
        node = self.node
        while not node.stop.is_set():
            message = await pubsub.get_message(timeout=LISTEN_S)
            if message is None:
                continue
            if message["channel"] == node.keys.nudge.encode():
                node.wake_planner.set()
                node.wake_expander.set()
            elif message["data"] != node.id.hex.encode():
                node.wake_owner.set()


async def run(settings: Settings) -> None:
    """Runs one node until SIGTERM or SIGINT. Raises what `Scheduler.open` raises, ConfigError if it cannot listen for who watches it."""
    scheduler = Scheduler(settings)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, scheduler.node.stop.set)
    meter = scheduler.meter
    async with serving(settings.metrics_listen, Watched("scheduler", meter.definitions, meter.read, meter.checks)):
        try:
            await scheduler.open()
            await scheduler.run()
        finally:
            await scheduler.close()


def main(settings: Settings) -> None:
    """Runs one node on uvloop; for the command line."""
    uvloop.run(run(settings))
