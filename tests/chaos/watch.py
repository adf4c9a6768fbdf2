"""Looks at the cluster while the play goes on: watermarks and epochs, what they claim, and what everything costs.

A look that fails (the server is away) is left out; the next one says more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]
import psycopg
from redis.exceptions import RedisError

from tests.chaos.stage import Stage

PERIOD_S = 1.0
_READ = """
select p.partition_id, p.epoch, extract(epoch from p.settled_through)::float8,
    count(r.schedule_id) filter (where r.origin <> 'trigger'
        and r.scheduled_at + make_interval(secs => r.jitter_offset_s) <= p.settled_through),
    coalesce(sum(r.missed), 0)
from bucketd.partitions p
left join bucketd.runs r on get_byte(uuid_send(r.schedule_id), 15) = p.partition_id
group by p.partition_id order by p.partition_id"""


class Mark(NamedTuple):
    """A partition at one look. `accounted`: rows of what was due up to `settled_s`, and occurrences counted in any row: a count may
    stand in a newer one, that a runner confirmed late."""

    epoch: int
    settled_s: float
    accounted: int


@dataclass(frozen=True, slots=True)
class Look:
    """All partitions, in one snapshot that was taken between two instants of the cluster's clock."""

    began_s: float
    ended_s: float
    marks: Sequence[Mark]


class Vitals(NamedTuple):
    """Of one process: bytes in memory, open descriptors, threads."""

    rss: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What everything holds at one instant. `seats`: of the living processes, by process id."""

    at_s: float
    seats: dict[int, Vitals]
    redis_bytes: int
    queued: int


@dataclass
class Watch:
    """All looks of a play."""

    looks: list[Look] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    async def run(self, stage: Stage) -> None:
        """Looks each second until it is cancelled."""
        while True:
            with suppress(psycopg.Error, OSError):
                self.looks.append(await look(stage))
            with suppress(RedisError, OSError):
                async with asyncio.timeout(2):
                    self.costs.append(await cost(stage))
            await asyncio.sleep(PERIOD_S)


async def look(stage: Stage) -> Look:
    """One look at the watermarks."""
    began_s = stage.now()
    rows = await stage.sql(_READ)
    marks = [Mark(epoch, settled_s, rows_ + int(missed)) for _, epoch, settled_s, rows_, missed in rows]
    return Look(began_s, stage.now(), marks)


async def cost(stage: Stage) -> Cost:
    """One look at memory and queues."""
    pipeline = stage.redis.pipeline(transaction=False)
    pipeline.info("memory")
    for queue in stage.keys.queues:
        pipeline.xlen(queue)
    memory, *queued = await pipeline.execute()
    return Cost(stage.now(), vitals(stage), int(memory["used_memory"]), sum(queued))


def vitals(stage: Stage) -> dict[int, Vitals]:
    """Of the processes that live now."""
    found = {}
    for seat in stage.seats.values():
        if seat.process is not None and seat.alive:
            with suppress(psutil.Error):
                process = psutil.Process(seat.process.pid)
                found[process.pid] = Vitals(process.memory_info().rss, process.num_fds(), process.num_threads())
    return found
