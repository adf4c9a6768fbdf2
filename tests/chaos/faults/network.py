"""The network between two of them: cut, so that everybody is told; silent, so that nobody is; silent one way; a whole host that is away.

Between each pair that talks: a node or a runner with Postgres, with Redis, runners with the target. Sockets have to come back by
themselves: by time-outs of reads, by TCP's user time-out and keepalive. Short ones must not be noticed, long ones outlive leases and
heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Literal, TypeAlias, get_args

from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.faults.seats import replace
from tests.chaos.stage import Stage
from tests.support.namespaces import Host, Towards, missing, missing_filter
from tests.support.proxy import Proxy, Side

STORES = ("postgres", "redis")
SHORT_S, LONG_S = (0.3, 5.0), (12.0, 40.0)  # a runner is dead after 30 s, a lease over after 10
How: TypeAlias = Literal["cut", "silent", "loses all to the server", "loses all to the client"]
HOWS: tuple[How, ...] = get_args(How)
_LOST: dict[How, Side] = {"loses all to the server": "server", "loses all to the client": "client"}


@dataclass(frozen=True)
class Between:
    """One way, by the suite's proxy."""

    one: str
    other: str
    how: How
    lasts_s: float

    @property
    def place(self) -> str:
        """Both ends, and how."""
        return f"{self.one} - {self.other}: {self.how}"

    @property
    def hits(self) -> frozenset[str]:
        """The seat: who starts there finds no store, and ends."""
        return frozenset({self.one if self.other in STORES else self.other})

    async def inject(self, stage: Stage) -> None:
        """From now on."""
        self._set(stage.link(self.one, self.other), True)

    async def heal(self, stage: Stage) -> None:
        """What was held comes after all; what was swallowed does not: its connections are reset."""
        self._set(stage.link(self.one, self.other), False)

    def _set(self, way: Proxy, on: bool) -> None:
        if self.how == "cut":
            way.refuse(on)
            if on:
                way.cut_now()
        elif self.how == "silent":
            way.freeze(on)
        else:
            way.swallow(_LOST[self.how], on)


@dataclass(frozen=True)
class HostAway:
    """A node on a host of its own (see tests/support/namespaces.py), which is not to be reached for a while, or only one way."""

    place: str
    lasts_s: float
    swallows: Towards | None = None
    _hosts: list[Host] = field(default_factory=list, compare=False)

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """It starts there, works, and is gone."""
        host = await stage.hold(Host())
        self._hosts.append(host)
        ways = [await stage.hold(Proxy(stage.link(self.place, store).url, host.address)) for store in STORES]
        env = {"BUCKETD_DSN": ways[0].url, "BUCKETD_REDIS_URL": ways[1].url}
        await replace(stage, self.place, env, host.under)
        await self._set(True)

    async def heal(self, stage: Stage) -> None:
        """It is back, and finds out what happened."""
        await self._set(False)

    async def _set(self, on: bool) -> None:
        host = self._hosts[-1]
        await asyncio.to_thread(*((host.swallow, self.swallows, on) if self.swallows else (host.pull, on)))


def _between(
    pick: Callable[[Random, Shape], tuple[str, str]], hows: Sequence[How], lasts_s: tuple[float, float]
) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return Between(*pick(random, shape), random.choice(hows), random.uniform(*lasts_s))

    return draw


def _host(swallows: Sequence[Towards | None]) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return HostAway(_seat(random, shape, "node"), random.uniform(*LONG_S), random.choice(swallows))

    return draw


def _seat(random: Random, shape: Shape, what: str) -> str:
    return random.choice([name for name in shape.seats if name.startswith(what)])


def _way(what: str, store: str) -> Callable[[Random, Shape], tuple[str, str]]:
    return lambda random, shape: (_seat(random, shape, what), store)


def _kinds() -> Iterator[Kind]:
    """Which way of going away it is, is drawn: a play meets each pair, some plays meet each way of each pair."""
    for what, store in product(("node", "runner"), STORES):
        way = _way(what, store)
        yield Kind(f"network: {what} - {store} away for a moment", _between(way, ("cut", "silent"), SHORT_S))
        yield Kind(f"network: {what} - {store} away for long", _between(way, HOWS, LONG_S), slow=True)
    # What a target does not answer is tried again, with more attempts in the time: seconds are long for it.
    yield Kind(
        "network: runners - target away", _between(lambda random, shape: ("runners", "target"), HOWS, (2.0, 8.0))
    )
    yield Kind("network: host of a node away", _host([None]), missing, slow=True)
    yield Kind("network: host of a node half away", _host(["host", "machine"]), missing_filter, slow=True)


KINDS = tuple(_kinds())
