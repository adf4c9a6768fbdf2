"""Wall clocks jump by an hour, forwards and back: that of a node, of a runner, of Redis. The cluster's clock is Postgres's, and goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.faults.redis import kill
from tests.chaos.faults.seats import replace
from tests.chaos.stage import Stage
from tests.support.faketime import CACHE_S, HOUR_S, FakeClock, missing

LONG_S = (8.0, 20.0)
RENEWED_S = 4.0  # nodes renew their leases each 3 s: what jumps then is what they live by


@dataclass(frozen=True)
class Jumped:
    """A node or runner that lives by a fake clock: right at first, then an hour off, then right again, all while it runs."""

    place: str
    by_s: int
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """Such a one takes the seat, begins to work, and its clock jumps."""
        clock = self._clock(stage)
        await replace(stage, self.place, clock.env)
        clock.jump(self.by_s)

    async def heal(self, stage: Stage) -> None:
        """It jumps back."""
        self._clock(stage).jump(0)
        await asyncio.sleep(CACHE_S)

    def _clock(self, stage: Stage) -> FakeClock:
        return FakeClock(stage.directory, self.place.replace(" ", "-"))


@dataclass(frozen=True)
class RedisJumped:
    """Redis is restarted with its data under a fake clock; then that is set, and set right again, while it runs. What it alone dates
    (leases, ages of messages, places under limits, the life of buckets) ends at once, or an hour late."""

    by_s: int
    lasts_s: float
    place: str = "redis"
    hits: frozenset[str] = frozenset({"redis"})

    async def inject(self, stage: Stage) -> None:
        """It comes back by that clock, which jumps when everybody has found it again."""
        clock = FakeClock(stage.directory, self.place)
        await stage.redis.save()
        await kill(stage)
        with clock.redis():
            await stage.restart_redis()
        (stage.directory / "redis" / "dump.rdb").unlink(missing_ok=True)
        await asyncio.sleep(RENEWED_S)
        clock.jump(self.by_s)

    async def heal(self, stage: Stage) -> None:
        """It is set right."""
        FakeClock(stage.directory, self.place).jump(0)
        await asyncio.sleep(CACHE_S)


def _seat(what: str, by_s: int) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        place = random.choice([name for name in shape.seats if name.startswith(what)])
        return Jumped(place, by_s, random.uniform(*LONG_S))

    return draw


def _redis(by_s: int) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return RedisJumped(by_s, random.uniform(*LONG_S))

    return draw


KINDS = tuple(
    Kind(
        f"{what}: clock jumps by {by_s // HOUR_S:+d} h", _redis(by_s) if what == "redis" else _seat(what, by_s), missing
    )
    for what in ("node", "runner", "redis")
    for by_s in (HOUR_S, -HOUR_S)
)
