"""Runs that were ended while their call is on its way, or before it began: by a newer run of their schedule (cancel_running), by a
user, or with their schedule.

Their rows are final already, so whatever a call brings is fenced. This closes the connection as well, and keeps a call from
beginning that nobody wants any more. A newer run's runner tells the others by pub/sub, within milliseconds; whoever else ended a
run, and whatever got lost on the way, is seen in Postgres, where calls that last are looked up again and again.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Iterable

import psycopg
from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.runner.channel import listen
from bucketd.runner.outage import Outage
from bucketd.runner.run import Run
from bucketd.store.claims import taken_away
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import Keys

LONG_S = 2.0  # a call that lasts so long is looked up
LOOK_S = 1.0  # period of that
REMEMBERED = 10_000  # runs that are not to begin: a claimed run waits seconds for its call, so it stands among the newest


class Cancellations:
    """The calls in flight by run, and the news that some of them are not wanted any more."""

    def __init__(self, settings: Settings, redis: Redis) -> None:
        self._redis = redis
        self._channel = Keys(settings.redis_prefix).cancel
        self._calls: dict[str, tuple[Run, asyncio.Task[None], float]] = {}
        self._unwanted: OrderedDict[str, None] = OrderedDict()
        self._untold: list[str] = []  # bounded: what three confirm statements and a wake bring between two loops of `tell`
        self._some = asyncio.Event()
        self._outage = Outage("cancel_channel")
        self._telling = Outage("cancel_tell")
        self._looking = Outage("cancel_look")

    def begun(self, run: Run, call: asyncio.Task[None]) -> None:
        """The call of this run is on its way."""
        self._calls[run.run_id] = run, call, monotonic()

    def ended(self, run: Run) -> None:
        """It is over."""
        self._calls.pop(run.run_id, None)

    def wants(self, run: Run) -> bool:
        """Whether the run may begin: nobody has ended it."""
        return not self._unwanted or run.run_id not in self._unwanted

    def announce(self, run_ids: Iterable[str]) -> None:
        """These rows were cancelled: here at once, and every other runner is told."""
        ids = list(run_ids)
        self.cancel(ids)
        self._untold += ids
        self._some.set()

    def cancel(self, run_ids: Iterable[str]) -> int:
        """Ends the calls of these runs that are on their way here; how many. The others will not begin."""
        found = 0
        for run_id in run_ids:
            call = self._calls.pop(run_id, None)
            if call is not None:
                call[1].cancel()
                found += 1
            self._unwanted[run_id] = None
        while len(self._unwanted) > REMEMBERED:
            self._unwanted.popitem(last=False)
        return found

    async def look_up(self, connection: psycopg.AsyncConnection[object]) -> int:
        """Ends the calls that last and whose runs are not theirs any more; how many. Raises psycopg.Error."""
        runs = self._lasting()
        if not runs:
            return 0
        keys = [run.schedule_id for run in runs], [run.at for run in runs], [run.claim.packed for run in runs]
        return self.cancel([runs[n].run_id for n in await taken_away(connection, *keys)])

    async def watch(self, pool: AsyncConnectionPool) -> None:
        """Looks up again and again, for ever; asks nothing while no call lasts."""
        while True:
            await asyncio.sleep(LOOK_S * random.uniform(0.8, 1.0))
            if not self._lasting():
                continue
            try:
                async with pool.connection() as connection:
                    await self.look_up(connection)
                self._looking.recovered()
            except psycopg.Error as error:
                await asyncio.sleep(self._looking.failed(error))

    def _lasting(self) -> list[Run]:
        before = monotonic() - LONG_S
        return [run for run, _, begun in self._calls.values() if begun <= before]

    async def tell(self) -> None:
        """Publishes what was announced. News that Redis does not take are dropped: results are fenced all the same."""
        while True:
            await self._some.wait()
            self._some.clear()
            ids, self._untold = self._untold, []
            try:
                await self._redis.publish(self._channel, ",".join(ids))
                self._telling.recovered()
            except (RedisError, OSError) as error:
                await asyncio.sleep(self._telling.failed(error))

    async def listen(self) -> None:
        """Hears what others announce, for ever."""
        await listen(self._redis, self._channel, self._heard, self._outage)

    def _heard(self, message: bytes) -> None:
        self.cancel(message.decode("ascii", "replace").split(","))
