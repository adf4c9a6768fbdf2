"""Redis forgets, goes back in time, sleeps, is full, or answers nobody. Postgres has everything; so fires may be late, and that is all."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.embedded import start_redis
from tests.chaos import disk
from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.stage import Stage
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

PLACE = "redis"
HITS = frozenset({PLACE})
LONG_S = (4.0, 15.0)
REPLICATED_S = 20.0
PLACES = 4


@dataclass(frozen=True)
class Flushed:
    """FLUSHALL."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """Everything is gone, and the server goes on."""
        await stage.redis.flushall()

    async def heal(self, stage: Stage) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class RestartedEmpty:
    """kill -9, and it comes back without data."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """It is away."""
        await kill(stage)
        (stage.directory / "redis" / "dump.rdb").unlink(missing_ok=True)

    async def heal(self, stage: Stage) -> None:
        """It is back, and knows nothing."""
        await stage.restart_redis()


@dataclass(frozen=True)
class RolledBack:
    """It comes back with an older copy of its data: what was done since then is undone, what was deleted is there again."""

    lasts_s: float
    age_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """A copy is made; some seconds later it is killed."""
        await stage.redis.save()
        await asyncio.sleep(self.age_s)
        await kill(stage)

    async def heal(self, stage: Stage) -> None:
        """It is back with the copy."""
        await stage.restart_redis()
        (stage.directory / "redis" / "dump.rdb").unlink(missing_ok=True)


@dataclass(frozen=True)
class Asleep:
    """SIGSTOP: connections stand, nothing answers."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """It stops."""
        os.kill(stage.servers.redis.pid, signal.SIGSTOP)

    async def heal(self, stage: Stage) -> None:
        """It goes on, with what its clients have sent meanwhile."""
        os.kill(stage.servers.redis.pid, signal.SIGCONT)


@dataclass(frozen=True)
class WritesPaused:
    """CLIENT PAUSE .. WRITE, as in a failover of the server's own: reads are answered, writes wait."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """Writes wait."""
        await stage.redis.client_pause(int(self.lasts_s * 2_000), all=False)

    async def heal(self, stage: Stage) -> None:
        """They are done."""
        await stage.redis.client_unpause()


@dataclass(frozen=True)
class OutOfMemory:
    """Its bound is below what it holds: everything that takes memory is refused."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """noeviction: errors, no silent loss."""
        await stage.redis.config_set("maxmemory", 1)

    async def heal(self, stage: Stage) -> None:
        """No bound again."""
        await stage.redis.config_set("maxmemory", 0)


@dataclass(frozen=True)
class DiskFull:
    """It cannot write its snapshot, and therefore refuses every write (MISCONF)."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """A snapshot that fails."""
        await stage.redis.config_set("save", "3600 1")
        stage.servers.disks["redis"].fill()
        with suppress(RedisError):
            await stage.redis.bgsave()
        await wait_until(lambda: self._refuses(stage.redis), 10, "Redis to refuse writes, as it cannot save")

    async def heal(self, stage: Stage) -> None:
        """There is room, and a snapshot succeeds."""
        stage.servers.disks["redis"].free()
        await stage.redis.config_set("save", "")
        await stage.redis.save()
        (stage.directory / "redis" / "dump.rdb").unlink(missing_ok=True)

    @staticmethod
    async def _refuses(redis: Redis) -> bool:
        try:
            await redis.set("chaos-probe", 1)
        except RedisError as error:
            return "MISCONF" in str(error)
        return False


@dataclass(frozen=True)
class NoConnections:
    """All its clients are thrown out, and others sit on the few places that there are."""

    lasts_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS
    _others: list[Redis] = field(default_factory=list, compare=False)

    async def inject(self, stage: Stage) -> None:
        """Until the server says that there is no place."""
        await stage.redis.config_set("maxclients", PLACES)
        await stage.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
        with suppress(RedisError, OSError):
            for _ in range(PLACES + 1):
                self._others.append(Redis.from_url(stage.redis_url))
                await self._others[-1].ping()

    async def heal(self, stage: Stage) -> None:
        """They leave, and everybody may come in again."""
        for other in self._others:
            await other.aclose()
        await wait_until(lambda: self._lifted(stage), 20, "a connection of the suite's own")

    @staticmethod
    async def _lifted(stage: Stage) -> bool:
        try:
            await stage.redis.config_set("maxclients", 10_000)
        except (RedisError, OSError):  # who waited for a place was faster
            for proxy in stage.ways("redis"):
                proxy.cut_now()
            return False
        return True


@dataclass(frozen=True)
class FailedOver:
    """The master dies, and a replica that lacks its last writes is promoted. `behind_s`: how much it lacks."""

    lasts_s: float
    behind_s: float
    place: str = PLACE
    hits: frozenset[str] = HITS

    async def inject(self, stage: Stage) -> None:
        """A replica follows, then loses the master out of sight, which dies a little later."""
        directory = stage.directory / f"redis-replica-{stage.now():.0f}"
        replica_server = await asyncio.to_thread(start_redis, directory)
        async with Proxy(stage.redis_url, blind=True) as way, Redis.from_url(replica_server.url) as replica:
            await replica.config_set("masterauth", (stage.directory / "redis" / "password").read_text())
            await replica.replicaof("127.0.0.1", way.port)
            await wait_until(lambda: self._follows(replica), REPLICATED_S, "the replica to follow")
            way.freeze()
            await asyncio.sleep(self.behind_s)
            await kill(stage)
            await replica.save()
        await asyncio.to_thread(replica_server.stop)
        shutil.copy(directory / "dump.rdb", stage.directory / "redis")
        shutil.rmtree(directory)

    async def heal(self, stage: Stage) -> None:
        """What the replica had is what there is."""
        await stage.restart_redis()
        (stage.directory / "redis" / "dump.rdb").unlink(missing_ok=True)

    @staticmethod
    async def _follows(replica: Redis) -> bool:
        return bool((await replica.info("replication"))["master_link_status"] == "up")


async def kill(stage: Stage) -> None:
    """kill -9 of the server; returns when it is gone."""
    with suppress(ProcessLookupError):
        os.kill(stage.servers.redis.pid, signal.SIGKILL)
    await wait_until(lambda: not stage.servers.redis.running(), 10, "Redis to be gone")


def _lasting(make: Callable[[float], Fault], length_s: tuple[float, float]) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return make(random.uniform(*length_s))

    return draw


KINDS = (
    Kind("redis: FLUSHALL", _lasting(Flushed, (0.0, 0.0))),
    Kind("redis: restart without data", _lasting(RestartedEmpty, (0.5, 8.0))),
    Kind("redis: restart with an older copy", lambda r, s: RolledBack(r.uniform(0.2, 4.0), r.uniform(1.0, 8.0))),
    Kind("redis: SIGSTOP", _lasting(Asleep, LONG_S)),
    Kind("redis: paused for 15 s", _lasting(Asleep, (15.0, 15.0)), slow=True),
    Kind("redis: CLIENT PAUSE WRITE", _lasting(WritesPaused, LONG_S)),
    Kind("redis: out of memory", _lasting(OutOfMemory, LONG_S)),
    Kind("redis: disk full", _lasting(DiskFull, LONG_S), disk.missing),
    Kind("redis: no connections left", _lasting(NoConnections, LONG_S)),
    Kind("redis: failover with lost writes", lambda r, s: FailedOver(r.uniform(0.5, 3.0), r.uniform(0.5, 3.0))),
)
