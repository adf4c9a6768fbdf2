"""What a fault is: one thing that goes wrong once, at one place, for a while, and is then made good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

I3_S = 120.0  # by then what fell due during a fault has a run, a skip, or is counted in one


class Fault(Protocol):
    """Times in seconds. `inject` and `heal` return when it is done; they are called once each, from the stage's event loop, and
    must not hold it up: proxies live in it (what blocks for longer than 20 ms belongs into `asyncio.to_thread`).

    An exception of either ends the play: the suite itself is broken. What a fault cannot do on a machine is said by its Kind.
    """

    @property
    def place(self) -> str:
        """What it hits, for people: `node 1`, `redis`, `runner 2 - postgres`."""

    @property
    def hits(self) -> frozenset[str]:
        """Names of places (see Stage) of which no other fault may hit one at the same time."""

    @property
    def lasts_s(self) -> float:
        """From the return of `inject` to the call of `heal`."""

    async def inject(self, stage: Stage) -> None: ...
    async def heal(self, stage: Stage) -> None: ...


class Shape(NamedTuple):
    """How many of each there are: `node 0` .. and `runner 0` .. are their names."""

    nodes: int
    runners: int
    midnight_s: float = 0.0  # when the day ends (UTC), in seconds after the begin of the play

    @property
    def seats(self) -> list[str]:
        """All names."""
        return [f"node {n}" for n in range(self.nodes)] + [f"runner {n}" for n in range(self.runners)]


Draw: TypeAlias = Callable[[Random, Shape], Fault]


def possible() -> str | None:
    """Nothing stands in the way."""
    return None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `draw`: one of them, its place and length drawn; it must depend on nothing but its arguments.

    `missing`: why this machine cannot do it (no root, no faketime), or None. `recovers_s`: bound of the time from `heal` until
    everything that was due has begun or is counted, and what falls due begins on time.
    """

    name: str
    draw: Draw
    missing: Callable[[], str | None] = possible
    recovers_s: float = I3_S
    slow: bool = False  # it lasts or recovers for so long that the short play leaves it out
    before_midnight_s: float | None = None  # it makes sense only then, and comes once
