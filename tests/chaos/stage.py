"""Where the play is given: own servers, own processes, and a proxy on every way between two of them.

Names of places: `node 0` .., `runner 0` .. (seats: whoever sits there may be killed and started again, the name stays), `postgres`,
`redis`, `target`. Each seat has a link of its own to each store (`stage.link("node 0", "redis")`); runners share one link a target,
`stage.link("runners", "target")`: a URL is one for all of them. `client` has links too, which no fault touches, but that lead where the
others lead; the suite's own looks go straight to the servers.

Everything is on 127.0.0.1. Times are seconds of the cluster's clock, which is Postgres's: `stage.now()`. Proxies and the client live
in the event loop of the caller: what blocks for longer than 20 ms belongs into a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from redis.asyncio import Redis

from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.keyring import new_key
from bucketd.store.keys import Keys
from bucketd.store.migrate import migrate
from tests.chaos.fault import Shape
from tests.chaos.journal import Journal
from tests.chaos.servers import Servers
from tests.support.edit_model import Span
from tests.support.postgres_pair import PostgresPair
from tests.support.processes import Process, Processes
from tests.support.proxy import Proxy
from tests.support.target import Target
from tests.support.waiting import wait_until

READY_S = 60.0
T = TypeVar("T")
DAY_S = 86_400
UNAVAILABLE = 4  # exit code of a process that could not reach a store
SUPERVISED_S = 1.0
PREFIX = "chaos"
SEATED = {"node": "scheduler", "runner": "runner"}


@dataclass
class Seat:
    """A process that is to be there. `env`: what this one has beside the stage's environment, from its next start on; `under`: a command
    that it is started through."""

    name: str
    process: Process | None = None
    env: dict[str, str] = field(default_factory=dict)
    under: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether somebody sits there, stopped or not."""
        return self.process is not None and self.process.returncode is None


class Stage:
    """An async context manager: servers, proxies and target run inside, and all that was started there ends with it.

    `pace`: settings of nodes and runners over their defaults.
    """

    def __init__(
        self, shape: Shape, directory: Path, *, pace: Mapping[str, str] | None = None, small_disks: bool = False
    ) -> None:
        """`small_disks`: the servers' data lies on file systems of their own (see disk.py), so that they can be full."""
        self.shape = shape
        self.directory = directory
        self.pace = dict(pace or {})
        self.servers = Servers(directory, small_disks=small_disks)
        self.seats = {name: Seat(name) for name in shape.seats}
        self.lost_commits: list[Span] = []  # what was committed inside may be gone: another database history
        self.keys = Keys(PREFIX)
        self.target = Target()
        self.dsn, self.redis_url = "", ""
        self.offset_s = 0.0  # of the cluster's clock to the machine's
        self.crashes: list[str] = []  # ends of logs
        self.first_day_s = 0  # midnight before the play
        self.redis: Redis
        self.journal: Journal
        self._links: dict[tuple[str, str], Proxy] = {}
        self._stack = AsyncExitStack()

    def link(self, one: str, other: str) -> Proxy:
        """The proxy between a seat (or `runners`) and `postgres`, `redis` or `target`. KeyError: there is no such way."""
        return self._links[one, other]

    def ways(self, server: str) -> list[Proxy]:
        """All proxies that lead to a server."""
        return [proxy for (_, other), proxy in self._links.items() if other == server]

    def now(self) -> float:
        """The cluster's clock; Postgres runs on this machine."""
        return time.time() + self.offset_s

    async def turn_to(self, at_s: float) -> None:
        """Turns the cluster's clock so that it shows this instant now, with everything before settled. Before anything is started."""
        self.offset_s = at_s - time.time()
        self.first_day_s = int(at_s) // DAY_S * DAY_S
        await self.sql("update bucketd.cluster set clock_offset = make_interval(secs => %s::float8)", self.offset_s)
        settled = (
            "update bucketd.partitions set settled_through = to_timestamp(%s), feed_snapshot = pg_current_snapshot()"
        )
        await self.sql(settled, at_s // 60 * 60 - 1)

    async def until(self, at_s: float) -> None:
        """Waits for an instant of the cluster's clock."""
        await asyncio.sleep(max(0.0, at_s - self.now()))

    async def start(self, *names: str) -> None:
        """Starts the processes of these seats (all that are empty, if none is named); returns at once, see `ready`."""
        for seat in [self.seats[name] for name in names] or [seat for seat in self.seats.values() if not seat.alive]:
            assert not seat.alive, f"{seat.name} is taken"
            what = SEATED[seat.name.split()[0]]
            ways = {
                "BUCKETD_DSN": self.link(seat.name, "postgres").url,
                "BUCKETD_REDIS_URL": self.link(seat.name, "redis").url,
            }
            seat.process = self._processes.start(
                what, name=seat.name.replace(" ", "-"), env={**self.pace, **ways, **seat.env}, under=seat.under
            )

    async def ready(self, timeout_s: float = READY_S) -> None:
        """Until every living process serves, all partitions have living owners, and each runner has a fresh heartbeat."""
        await wait_until(self._is_ready, timeout_s, "nodes to share all partitions, and runners to be alive")

    async def supervise(self) -> None:
        """Until it is cancelled: starts again who has ended because a store was away when it came, as any supervisor would. Any
        other end that nobody asked for is a crash, and noted."""
        while True:
            for seat in self.seats.values():
                code = seat.process.returncode if seat.process else None
                if code is not None and code > 0:
                    assert seat.process is not None
                    if code != UNAVAILABLE:
                        self.crashes.append(seat.process.tail())
                    await self.start(seat.name)
            await asyncio.sleep(SUPERVISED_S)

    async def hold(self, more: AbstractAsyncContextManager[T]) -> T:
        """Something more that the stage has until its end."""
        return await self._stack.enter_async_context(more)

    async def stop(self, name: str, timeout_s: float = 40.0) -> int:
        """SIGTERM, and its exit code."""
        seat = self.seats[name]
        assert seat.process is not None
        seat.process.terminate()
        return await seat.process.wait_exit(timeout_s)

    async def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement (none for one that returns no rows) on a new connection, straight to the primary."""
        async with self.connect() as connection:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def one(self, statement: str, *parameters: Any) -> Any:
        """The first value of the first row."""
        return (await self.sql(statement, *parameters))[0][0]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection of the suite's own, straight to the primary, in autocommit."""
        async with await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, connect_timeout=5, application_name="chaos"
        ) as connection:
            yield connection

    async def restart_postgres(self) -> None:
        """Starts it again, after whatever became of it; all ways lead to its new port."""
        await self.lead("postgres", await self.servers.restart_postgres())

    async def promote(self, pair: PostgresPair) -> None:
        """The standby is the primary, and all ways lead there; the old one is no more."""
        await self.lead("postgres", await self.servers.promote(pair))

    async def restart_redis(self) -> None:
        """Starts it again, after whatever became of it, with what it finds on its disk."""
        await self.lead("redis", await self.servers.restart_redis())

    async def lead(self, server: str, url: str) -> None:
        """All ways to `postgres` or `redis` lead to this URL from now on, as after a move of its address; open connections stay."""
        for proxy in self.ways(server):
            proxy.lead_to(url)
        if server == "postgres":
            self.dsn = url
        else:
            self.redis_url = url
            await self.redis.aclose()
            self.redis = Redis.from_url(url)

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        await self._stack.enter_async_context(self.servers)
        self.dsn, self.redis_url = self.servers.postgres.tcp_url, self.servers.redis.url
        await asyncio.to_thread(migrate, self.dsn)
        self.target.start()
        self._stack.callback(self.target.stop)
        self.redis = Redis.from_url(self.redis_url)
        self._stack.push_async_callback(lambda: self.redis.aclose())
        for name in (*self.seats, "client"):
            await self._lay(name, "postgres", self.dsn)
            await self._lay(name, "redis", self.redis_url)
        await self._lay("runners", "target", self.target.url)
        key = new_key()
        settings = Settings.load(
            {},
            dsn=self.link("client", "postgres").url,
            redis_url=self.link("client", "redis").url,
            redis_prefix=PREFIX,
            egress_allow=LOOPBACK,
            secret_keys=key,
        )
        self.pace["BUCKETD_SECRET_KEYS"] = key
        self.journal = Journal(settings, self.now)
        self._stack.push_async_callback(self.journal.close)
        self._processes = Processes(settings, self.directory)
        self._stack.callback(self._processes.reap, show=False)

    async def _lay(self, one: str, other: str, url: str) -> None:
        self._links[one, other] = await self._stack.enter_async_context(Proxy(url))

    async def _is_ready(self) -> bool:
        nodes = sum(seat.alive for name, seat in self.seats.items() if name.startswith("node"))
        runners = sum(seat.alive for name, seat in self.seats.items() if name.startswith("runner"))
        members = await self.redis.zcount(self.keys.members, f"({self.now() * 1000}", "+inf")
        owned, owners, alive = (await self.sql(_STANDING))[0]
        return bool(members == owners == nodes and owned == 256 * bool(nodes) and alive == runners)


_STANDING = """
select count(owner), count(distinct owner),
    (select count(*) from bucketd.runners where dead_at is null and heartbeat_at > bucketd.bucketd_now() - interval '15 s')
from bucketd.partitions"""
