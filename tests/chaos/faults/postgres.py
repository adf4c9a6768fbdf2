"""Postgres restarts, loses connections and replies, sleeps, is full; and days of `runs` are missing, or come back from the dead."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

from bucketd.store.fires import FAR, encode_message
from tests.chaos import disk
from tests.chaos.ancient import fire_of, schedule_id
from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.stage import Stage
from tests.support.edit_model import Span
from tests.support.waiting import wait_until

PLACE = "postgres"
HITS = frozenset({PLACE})
LONG_S = (3.0, 12.0)
CALLED_S = 5.0  # a run that was claimed before the primary died may still be called
CRASH, FAST = signal.SIGQUIT, signal.SIGINT
ROUND_S = 1.5  # between terminations of all backends
# What a lost reply leaves in doubt: a confirm, a result, a wake, a plan's mark of nothing (it reads), and any commit of a transaction.
MARKERS = (
    b"insert into bucketd.runs",
    b"set status = 'succeeded'",
    b"for update skip locked",
    b"update bucketd.partitions",
    b"COMMIT",
)


@dataclass(frozen=True)
class Restarted:
    """The server is stopped (SIGINT: clients are cut; SIGQUIT: as a crash) and comes back elsewhere, as behind one address."""

    lasts_s: float
    how: signal.Signals
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """It is away."""
        os.kill(stage.servers.postgres.pid, self.how)
        await wait_until(lambda: not stage.servers.postgres.running(), 30, "Postgres to be gone")

    async def heal(self, stage: Stage) -> None:
        """It is back."""
        await stage.restart_postgres()


@dataclass(frozen=True)
class Terminated:
    """pg_terminate_backend of all that are ours, again and again."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS
    _killing: list[asyncio.Task[None]] = field(default_factory=list, compare=False)

    async def inject(self, stage: Stage) -> None:
        """A first time, and then in the background."""
        await terminate(stage)
        self._killing.append(asyncio.create_task(self._go_on(stage)))

    async def heal(self, stage: Stage) -> None:
        """No more."""
        self._killing.pop().cancel()

    async def _go_on(self, stage: Stage) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            await terminate(stage)


@dataclass(frozen=True)
class ReplyLost:
    """What a process sent is committed, and it cannot know: its connection ends with the reply. Once for each marker."""

    place: str
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat, whose link it is."""
        return frozenset({self.place, PLACE})

    async def inject(self, stage: Stage) -> None:
        """The first one is looked for."""
        self._seek(stage, MARKERS[0])

    async def heal(self, stage: Stage) -> None:
        """The others, each for a moment; what did not come is not looked for any more."""
        link = stage.link(self.place, PLACE)
        for marker in MARKERS[1:]:
            lost = self._seek(stage, marker)
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await lost.wait()
        link.marker = None

    def _seek(self, stage: Stage, marker: bytes) -> asyncio.Event:
        return stage.link(self.place, PLACE).lose_reply_after(marker)


@dataclass(frozen=True)
class Asleep:
    """SIGSTOP to the server and all its backends: connections stand, nothing answers, and no time-out of the server's own counts."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """They stop, the parent first: it would notice."""
        for process in _family(stage.servers.postgres.pid):
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    async def heal(self, stage: Stage) -> None:
        """They go on."""
        for process in _family(stage.servers.postgres.pid):
            with suppress(psutil.NoSuchProcess):
                process.resume()


@dataclass(frozen=True)
class DiskFull:
    """Nothing can be written: inserts fail, and when the log needs a new segment the server itself goes down and cannot come back."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """To the last block."""
        await asyncio.to_thread(stage.servers.disks["postgres"].fill)

    async def heal(self, stage: Stage) -> None:
        """Room again; where the server has gone down it is started."""
        stage.servers.disks["postgres"].free()
        if not stage.servers.postgres.running():
            await stage.restart_postgres()
        await wait_until(lambda: _answers(stage), 60, "Postgres to answer again")


@dataclass(frozen=True)
class NoConnections:
    """Ours are thrown out, and others sit on all places."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS
    _others: AsyncExitStack = field(default_factory=AsyncExitStack, compare=False)

    async def inject(self, stage: Stage) -> None:
        """Until the server says that there is no place."""
        places = int(await stage.one("show max_connections"))
        for _ in range(2 * places):
            await terminate(stage)
            with suppress(psycopg.OperationalError):
                for _ in range(places):
                    await self._others.enter_async_context(
                        await psycopg.AsyncConnection.connect(stage.dsn, application_name="others", connect_timeout=5)
                    )
            if not await _answers(stage, application="others"):
                return

    async def heal(self, stage: Stage) -> None:
        """They leave."""
        await self._others.aclose()


@dataclass(frozen=True)
class FailedOver:
    """The primary dies, and a standby that lacks its last commits is promoted: another history of the database begins. `behind_s`: of
    how long it lacks the commits."""

    lasts_s: float
    behind_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """Nothing is written by the client meanwhile: it would be told of commits that are then lost."""
        pair = await stage.servers.standby()
        async with stage.journal.silence():
            cut_s = stage.now()  # what is committed from now on may be lost
            await asyncio.to_thread(pair.catch_up)
            await asyncio.to_thread(pair.cut_replication)
            await asyncio.sleep(self.behind_s)
            await pair.kill_primary()
            await stage.promote(pair)
            stage.lost_commits.append(Span(cut_s, stage.now() + CALLED_S))

    async def heal(self, stage: Stage) -> None:
        """It is the primary."""


@dataclass(frozen=True)
class DayMissing:
    """The next day of `runs`, and all after it, were never made: nobody looked after them for a week. It is made when it is needed."""

    lasts_s: float = 0.0
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """As if no scheduler had been there to make them."""
        async with stage.connect() as connection, connection.transaction():
            await connection.execute("select 1 from bucketd.cluster for update")
            for (name,) in await _days(connection, "> (bucketd.bucketd_now() at time zone 'UTC')::date"):
                await connection.execute(f"drop table bucketd.{name}".encode())
            await connection.execute(
                "update bucketd.cluster set days_through = date_trunc('day', bucketd.bucketd_now(), 'UTC') + interval '1 day'"
            )

    async def heal(self, stage: Stage) -> None:
        """Nobody does anything."""


@dataclass(frozen=True)
class DayDropped:
    """Retention has dropped a day, and a message with an occurrence of it comes up again. It must not run."""

    lasts_s: float = 1.0
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """The floor rises, days below it go, and the old fire is in a queue, twice."""
        async with stage.connect() as connection, connection.transaction():
            await connection.execute(
                "update bucketd.cluster set retention_floor = greatest(retention_floor, to_timestamp(%s)),"
                " days_from = greatest(days_from, to_timestamp(%s))",
                (stage.first_day_s, stage.first_day_s),
            )
            for (name,) in await _days(connection, "< (to_timestamp(%s) at time zone 'UTC')::date", stage.first_day_s):
                await connection.execute(f"drop table bucketd.{name}".encode())
        id = schedule_id()
        message = encode_message(id.bytes[15], [fire_of(stage.first_day_s - 43_200, FAR)])
        for _ in range(2):
            await stage.redis.xadd(stage.keys.queue(id.bytes[15]), {"m": message, "c": 1, "n": 1})

    async def heal(self, stage: Stage) -> None:
        """Nothing to do."""


async def terminate(stage: Stage) -> None:
    """Ends every backend but the suite's own."""
    with suppress(psycopg.OperationalError, OSError):
        await stage.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend'"
            " and application_name not in ('chaos', 'others')"
        )


async def _answers(stage: Stage, application: str = "chaos") -> bool:
    try:
        async with await psycopg.AsyncConnection.connect(stage.dsn, connect_timeout=5, application_name=application):
            return True
    except psycopg.OperationalError:
        return False


async def _days(connection: psycopg.AsyncConnection[Any], which: str, *parameters: object) -> list[tuple[str]]:
    cursor = await connection.execute(
        f"select relname from pg_class where relnamespace = 'bucketd'::regnamespace and relkind = 'r'"
        f" and relname ~ '^runs_[0-9]{{8}}$' and to_date(right(relname, 8), 'YYYYMMDD') {which} order by relname".encode(),
        parameters or None,
    )
    return await cursor.fetchall()


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _lasting(make: Callable[[float], Fault], length_s: tuple[float, float]) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return make(random.uniform(*length_s))

    return draw


KINDS = (
    Kind("postgres: fast restart", lambda r, s: Restarted(r.uniform(0.2, 6.0), FAST)),
    Kind("postgres: crash", lambda r, s: Restarted(r.uniform(0.2, 6.0), CRASH)),
    Kind("postgres: backends terminated", _lasting(Terminated, (0.1, 8.0))),
    Kind("postgres: reply lost after commit", lambda r, s: ReplyLost(r.choice(s.seats), r.uniform(2.0, 4.0))),
    Kind("postgres: SIGSTOP", _lasting(Asleep, LONG_S)),
    Kind("postgres: disk full", _lasting(DiskFull, LONG_S), disk.missing),
    Kind("postgres: no connections left", _lasting(NoConnections, LONG_S)),
    Kind("postgres: failover with lost commits", lambda r, s: FailedOver(r.uniform(0.2, 1.0), r.uniform(0.5, 4.0))),
    Kind("postgres: next day of runs missing", lambda r, s: DayMissing(), before_midnight_s=5.0),
    Kind("postgres: an occurrence of a dropped day", lambda r, s: DayDropped()),
)
