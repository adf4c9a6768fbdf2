"""A rolling restart to a release with a newer format of queue messages, with an old runner in between, and back again.

The newer release is this one under BUCKETD_TEST_MESSAGE_VERSION: it reads and writes a version of the message that has one field more,
which an old runner cannot read at all. To the protocol a real change of the format is nothing else, so no second code is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from bucketd.store.fires import MESSAGE_VERSION
from tests.chaos.fault import Fault, Kind, Shape
from tests.chaos.stage import Stage

SWITCH, NEWER = "BUCKETD_TEST_MESSAGE_VERSION", str(MESSAGE_VERSION + 1)
STOPS_S = 45.0  # SIGTERM to the end; a store may be away


@dataclass(frozen=True)
class Rolling:
    """One seat after the other, in these orders: up, and down again. When all are up, one of the runners goes back for a moment."""

    up: tuple[str, ...]
    down: tuple[str, ...]
    straggler: str
    lasts_s: float
    place: str = "all"
    _rolling: list[asyncio.Task[None]] = field(default_factory=list, compare=False)

    @property
    def hits(self) -> frozenset[str]:
        """All seats."""
        return frozenset(self.up)

    async def inject(self, stage: Stage) -> None:
        """It begins."""
        self._rolling.append(asyncio.create_task(self._roll(stage, stage.now() + self.lasts_s)))

    async def heal(self, stage: Stage) -> None:
        """No further restart. Who is not back by now, goes back when it is started next."""
        await self._rolling.pop()
        for name in self.up:
            stage.seats[name].env.pop(SWITCH, None)

    async def _roll(self, stage: Stage, until_s: float) -> None:
        for name, newer in self._steps():
            if stage.now() < until_s:
                await restart(stage, name, newer=newer)

    def _steps(self) -> Iterator[tuple[str, bool]]:
        yield from ((name, True) for name in self.up)
        yield self.straggler, False
        yield self.straggler, True
        yield from ((name, False) for name in self.down)


async def restart(stage: Stage, name: str, *, newer: bool) -> None:
    """SIGTERM, as for a deploy, and the other release takes the seat."""
    seat = stage.seats[name]
    if seat.alive:
        await stage.stop(name, STOPS_S)
    if newer:
        seat.env[SWITCH] = NEWER
    else:
        seat.env.pop(SWITCH, None)
    await stage.start(name)


def _draw(random: Random, shape: Shape) -> Fault:
    seats = shape.seats
    up, down = random.sample(seats, len(seats)), random.sample(seats, len(seats))
    straggler = random.choice([name for name in seats if name.startswith("runner")])
    return Rolling(tuple(up), tuple(down), straggler, random.uniform(40.0, 60.0))


KINDS = (Kind("versions: rolling restart to newer messages and back", _draw, slow=True),)
