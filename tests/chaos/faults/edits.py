"""Storms of edits around due instants: put, another timing, pause, resume, delete, trigger, all within EDGE_S of when something is due.

They go through the client library and into the journal, as all that the suite writes; so the checker judges them as it judges the rest.
Each schedule has one writer: what follows what is known.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from tests.chaos.fault import Fault, Kind, Shape
from tests.chaos.journal import Journal
from tests.chaos.stage import Stage
from tests.chaos.timings import Planned
from tests.support.edit_model import Timing

TENANT = "storm"
WRITERS = 16
EDGE_S = 2.0
PERIODS_S = (4, 5, 6)  # long enough that not every moment is at an edge
TAIL_S = 15  # the schedules go on for that long
POLICIES = ("run_once", "skip", "catch_up")


def moment(now_s: float, timing: Timing, random: Random) -> float:
    """A time from now on within EDGE_S of a due instant, as likely before as after it."""
    assert timing.every_s is not None
    due_s = math.ceil((now_s + EDGE_S - timing.phase_s) / timing.every_s) * timing.every_s + timing.phase_s
    return due_s + random.uniform(-EDGE_S, EDGE_S)


def drawn(name: str, n: int, ends_s: float, random: Random) -> Planned:
    """A schedule of the storm with a timing that is drawn."""
    every_s = random.choice(PERIODS_S)
    timing = Timing(every_s=every_s, phase_s=random.randrange(every_s), jitter_s=random.choice((0, 0, 2)))
    ends_at = datetime.fromtimestamp(math.ceil(ends_s), UTC)
    return Planned(TENANT, name, timing, {"target": "plain", "misfire": POLICIES[n % 3], "ends_at": ends_at})


@dataclass(frozen=True)
class Storm:
    """Begins when the schedules are there, and rages until it heals."""

    seed: int
    lasts_s: float
    place: str = "schedules"
    hits: frozenset[str] = frozenset()
    _writing: list[asyncio.Task[None]] = field(default_factory=list, compare=False)

    async def inject(self, stage: Stage) -> None:
        """New schedules, and a writer for each."""
        until_s = stage.now() + self.lasts_s
        self._writing.append(asyncio.create_task(self._rage(stage, until_s)))

    async def heal(self, stage: Stage) -> None:
        """What was begun is acknowledged."""
        await self._writing.pop()

    async def _rage(self, stage: Stage, until_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(WRITERS):
                group.create_task(self._write(stage, f"storm-{self.seed}-{n:02}", n, until_s))

    async def _write(self, stage: Stage, name: str, n: int, until_s: float) -> None:
        random = Random(f"{self.seed}/{n}")
        planned = drawn(name, n, until_s + TAIL_S, random)
        await stage.journal.put(planned)
        while (at_s := moment(stage.now(), planned.timing, random)) < until_s:
            await stage.until(at_s)
            if random.random() < 0.4:
                planned = drawn(name, n, until_s + TAIL_S, random)
                await stage.journal.put(planned)
            else:
                await steer(stage.journal, planned, random)


async def steer(journal: Journal, planned: Planned, random: Random) -> None:
    """Something else than another timing, whatever state the schedule is in."""
    life = journal.living((planned.tenant, planned.name))
    if life is None:
        await journal.put(planned)
    elif life.history.paused:
        await journal.resume(life)
    else:
        await random.choice((journal.pause, journal.pause, journal.delete, journal.trigger))(life)


def _draw(random: Random, shape: Shape) -> Fault:
    return Storm(random.getrandbits(24), random.uniform(8.0, 20.0))


KINDS = (Kind("edits: a storm around due instants", _draw),)
