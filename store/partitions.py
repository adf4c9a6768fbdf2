"""Partitions in Postgres: epochs, owners, and the cluster's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
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


async def take(connection: AsyncConnection[Any], owner: UUID, fence_epochs: Mapping[int, int | None]) -> list[Taken]:
    """Issues a new epoch for each partition; `fence_epochs`: what stands in Redis (None: nothing)."""
    parameters = {
        "owner": owner,
        "partitions": list(fence_epochs),
        "fence_epochs": [epoch or 0 for epoch in fence_epochs.values()],
    }
    rows = await (await connection.execute(_SQL["take"], parameters)).fetchall()
    return [Taken(*row) for row in rows]


async def disown(connection: AsyncConnection[Any], owner: UUID, partitions: Iterable[int]) -> None:
    """Takes the owner's name off partitions that it gives up."""
    await connection.execute(_SQL["disown"], {"owner": owner, "partitions": list(partitions)})


async def watermarks(connection: AsyncConnection[Any]) -> list[tuple[int, int, str]]:
    """(partition, settled_through in epoch seconds, feed snapshot) of all partitions."""
    return [(row[0], row[1], row[2]) for row in await (await connection.execute(_SQL["watermarks"])).fetchall()]


async def read_clock(connection: AsyncConnection[Any], clock: Clock) -> str | None:
    """Reads Postgres's clock into `clock`; returns the release of tzdata that the cluster computes with, if any was stored."""
    asked_at = monotonic()
    row = await (await connection.execute(_SQL["clock"])).fetchone()
    assert row is not None
    clock.observe(row[0], asked_at, monotonic())
    return None if row[1] is None else str(row[1])
