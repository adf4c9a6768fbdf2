"""Nodes and runners die, at any moment or at a named point, and sleep past their leases. Whoever died is started again by `heal`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import get_args

from bucketd.store.failpoint import NodePoint, RunnerPoint
from tests.chaos.fault import Draw, Fault, Kind, Shape
from tests.chaos.stage import Stage
from tests.support.processes import Process
from tests.support.waiting import wait_until

SHORT_S, LONG_S = (0.5, 6.0), (11.0, 18.0)  # a lease of 10 s is over, or is not


def _process(stage: Stage, place: str) -> Process:
    """Who sits there; somebody does."""
    process = stage.seats[place].process
    assert process is not None
    return process


@dataclass(frozen=True)
class Killed:
    """kill -9."""

    place: str
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """It is gone."""
        _process(stage, self.place).kill9()

    async def heal(self, stage: Stage) -> None:
        """Another one comes."""
        await stage.start(self.place)


@dataclass(frozen=True)
class KilledAt:
    """It is started anew with a point at which it dies; where that is not reached in time (a node that owns nothing) it is killed."""

    place: str
    point: str
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """A successor sits there and will die."""
        seat = stage.seats[self.place]
        assert seat.process is not None
        seat.process.kill9()
        seat.env["BUCKETD_TEST_KILL_AT"] = self.point
        await stage.start(self.place)

    async def heal(self, stage: Stage) -> None:
        """It has died, and one that does not comes."""
        seat = stage.seats[self.place]
        seat.env.pop("BUCKETD_TEST_KILL_AT", None)
        if seat.process is not None:
            seat.process.kill9()
        await stage.start(self.place)


@dataclass(frozen=True)
class Asleep:
    """SIGSTOP, then SIGCONT: it does not know that time has passed, and that others have taken over."""

    place: str
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """It stops where it is."""
        _process(stage, self.place).stop_signal()

    async def heal(self, stage: Stage) -> None:
        """It goes on."""
        _process(stage, self.place).cont()


@dataclass(frozen=True)
class Stopped:
    """SIGTERM, as for a deploy: it hands over what it has, and a successor comes."""

    place: str
    lasts_s: float

    @property
    def hits(self) -> frozenset[str]:
        """The seat."""
        return frozenset({self.place})

    async def inject(self, stage: Stage) -> None:
        """It ends by itself. (While a store is away that may take it a while.)"""
        _process(stage, self.place).terminate()

    async def heal(self, stage: Stage) -> None:
        """It has ended, and the next one comes."""
        process = _process(stage, self.place)
        await wait_until(lambda: process.returncode is not None, 45, f"{self.place} to stop")
        if not stage.seats[
            self.place
        ].alive:  # one that found no store at its end counts as crashed, and is started again anyway
            await stage.start(self.place)


def _seat(random: Random, shape: Shape, what: str) -> str:
    return random.choice([name for name in shape.seats if name.startswith(what)])


def _drawn(what: str, make: Callable[[str, float], Fault], length_s: tuple[float, float]) -> Draw:
    def draw(random: Random, shape: Shape) -> Fault:
        return make(_seat(random, shape, what), random.uniform(*length_s))

    return draw


def _drawn_at(what: str, point: str) -> Draw:
    """Settling comes once a minute and a take-over is rare: they are met the first time."""
    times = (1,) if point in ("before_settle", "in_take_over") else (1, 1, 3, 10)

    def draw(random: Random, shape: Shape) -> Fault:
        place, at = _seat(random, shape, what), f"{point}:{random.choice(times)}"
        return KilledAt(place, at, random.uniform(8.0, 14.0))

    return draw


def _kinds() -> Iterator[Kind]:
    for what in ("node", "runner"):
        yield Kind(f"{what}: kill -9", _drawn(what, Killed, SHORT_S))
        yield Kind(f"{what}: SIGTERM", _drawn(what, Stopped, SHORT_S))
        yield Kind(f"{what}: SIGSTOP for a moment", _drawn(what, Asleep, SHORT_S))
        yield Kind(f"{what}: SIGSTOP past its lease", _drawn(what, Asleep, LONG_S))
    for what, points in (("node", get_args(NodePoint)), ("runner", get_args(RunnerPoint))):
        for point in points:
            yield Kind(f"{what}: dies at {point}", _drawn_at(what, point))


KINDS = tuple(_kinds())
