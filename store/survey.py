"""The state of the whole cluster as monitoring shows it: two short looks at Postgres, one at Redis. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import class_row
from redis.asyncio import Redis

from bucketd.store import breakers, doctor
from bucketd.store.backlog import parse_id
from bucketd.store.breakers import OpenBreaker
from bucketd.store.depth import fires_between
from bucketd.store.doctor import Days
from bucketd.store.keys import SHARDS, Keys
from bucketd.store.operation import drive_async
from bucketd.store.statements import statements

BOUND = 10_000  # counts of what may grow without end stop here


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at Postgres. Counts of runs and dead letters stop at BOUND."""

    oldest_unsettled_s: float
    partitions_unowned: int
    runners_alive: int
    runs_overdue: int
    runs_held: int
    backfills_open: int
    dead_letters: int
    specs_failed: int
    holds_of_all: int
    holds_of_tenants: int
    holds_of_targets: int
    breakers_open: int


class Queue(NamedTuple):
    """One queue: the fires in it that no runner has acknowledged, and when the oldest message was written (epoch seconds by Redis's
    clock; None: it is empty)."""

    shard: int
    crowd: bool
    fires: int
    since_s: float | None


async def figures(connection: AsyncConnection[Any], dead_after_s: float) -> tuple[Figures, Days, list[OpenBreaker]]:
    """Counts, the days of runs, and open breakers, oldest first. Raises psycopg.Error."""
    cursor = connection.cursor(row_factory=class_row(Figures))
    await cursor.execute(statements("survey")["read"], {"dead_after_s": dead_after_s, "bound": BOUND})
    found = await cursor.fetchone()
    assert found is not None
    return found, await drive_async(doctor.days(), connection), await drive_async(breakers.list_open(), connection)


async def queues(redis: Redis, keys: Keys) -> list[Queue]:
    """All queues, in one pipeline. Raises RedisError."""
    pipeline = redis.pipeline(transaction=False)
    for queue in keys.queues:
        pipeline.xrevrange(queue, count=1)
        pipeline.xrange(queue, count=1)
    answers: list[Any] = await pipeline.execute()
    found: list[Queue] = []
    for place, (last, first) in enumerate(zip(answers[::2], answers[1::2], strict=True)):
        since_s = parse_id(first[0][0])[0] / 1000 if first else None
        found.append(Queue(place % SHARDS, place >= SHARDS, fires_between(last, first), since_s))
    return found
