"""Partitions in Postgres: epochs, owners, and the cluster's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.store.clock import Clock, monotonic
from bucketd.store.statements import statements

_SQL = statements("partitions")


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that was just taken: its fence and where its last owner stood."""

    partition: int
    epoch: int
    settled_through_s: int
    feed_snapshot: str
    same_history: bool  # else Redis has what was planned from rows that may be lost
    history: str


async def take(connection: AsyncConnection[Any], owner: UUID, fence_epochs: Mapping[int, int | None]) -> list[Taken]:
    """Issues a new epoch for each partition; `fence_epochs`: what stands in Redis (None: nothing)."""
    parameters = {
        "owner": owner,
        "partitions": list(fence_epochs),
        "fence_epochs": [epoch or 0 for epoch in fence_epochs.values()],
    }
    rows = await (await connection.execute(_SQL["take"], parameters)).fetchall()
    return [Taken(*row) for row in rows]


async def trust(connection: AsyncConnection[Any], history: str, partitions: Iterable[int]) -> None:
    """Notes that Redis has nothing more of these partitions that was planned in an earlier history."""
    await connection.execute(_SQL["trust"], {"history": history, "partitions": list(partitions)})


async def disown(connection: AsyncConnection[Any], owner: UUID, partitions: Iterable[int]) -> None:
    """Takes the owner's name off partitions that it gives up."""
    await connection.execute(_SQL["disown"], {"owner": owner, "partitions": list(partitions)})


async def watermarks(connection: AsyncConnection[Any]) -> list[tuple[int, int, str]]:
    """(partition, settled_through in epoch seconds, feed snapshot) of all partitions."""
    return [(row[0], row[1], row[2]) for row in await (await connection.execute(_SQL["watermarks"])).fetchall()]


class Standing(NamedTuple):
    """Where a partition stands in Postgres: its last epoch, whose name is on it, how far its watermark is behind (s)."""

    partition: int
    epoch: int
    owner: str | None
    settled_lag_s: float


async def standings(connection: AsyncConnection[Any]) -> list[Standing]:
    """Of all partitions, in their order."""
    rows = await (await connection.execute(_SQL["standings"])).fetchall()
    return [Standing(row[0], row[1], row[2].hex if row[2] else None, row[3]) for row in rows]


class Reading(NamedTuple):
    """The release of tzdata that the cluster computes with, if any was stored; the history that Postgres lives in; the newest queue
    messages that every live runner reads, None: there is no runner."""

    tzdata: str | None
    history: str
    message_version: int | None


async def read_clock(connection: AsyncConnection[Any], clock: Clock) -> Reading:
    """Reads Postgres's clock into `clock`, and what is looked at as often."""
    asked_at = monotonic()
    row = await (await connection.execute(_SQL["clock"])).fetchone()
    assert row is not None
    clock.observe(row[0], asked_at, monotonic())
    return Reading(*row[1:])
