"""Rows with a due wake_at, and those for which there is a place now: claimed for their next attempt, or ended by a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import args_row
from psycopg.types.string import TextBinaryLoader

from bucketd.store.statements import statements


class Woken(NamedTuple):
    """One row that wake took. Only with status `running` it is the caller's, and has payload, name and revision."""

    schedule_id: UUID
    scheduled_at: datetime
    attempt: int
    status: str
    tenant: str
    name: str
    target_id: int
    timeout_s: int | None
    payload: str  # JSON text as stored
    revision: int
    probe: bool  # whether a breaker let it through a hold, to see how the target does
    queue: str | None  # it waited for a place: at its `target` or of its `tenant`
    background: bool
    late_s: float | None  # since due, of a first attempt; None: another one, or nobody waited for it (triggered, backfilled, caught up)


class Room(NamedTuple):
    """How many rows a statement may take: `total`, of them `background` ones that are due, and of those that wait for a place at a
    target or of a tenant the places there are."""

    total: int
    background: int
    targets: Mapping[int, int]
    tenants: Mapping[str, int]


async def take(
    connection: psycopg.AsyncConnection[Any], runner_id: UUID, claim: int, *, room: Room, dead_after_s: float
) -> list[Woken]:
    """Takes rows under `claim`; none if the runner is dead by Postgres's reckoning. Raises psycopg.Error."""
    cursor = connection.cursor(binary=True, row_factory=args_row(Woken))
    cursor.adapters.register_loader("json", TextBinaryLoader)
    parameters = {
        "runner": runner_id,
        "claim": claim,
        "dead_after_s": dead_after_s,
        "room": room.total,
        "background": room.background,
        "targets": list(room.targets),
        "target_places": list(room.targets.values()),
        "tenants": list(room.tenants),
        "tenant_places": list(room.tenants.values()),
    }
    await cursor.execute(statements("wake")["take"], parameters)
    return await cursor.fetchall()


async def busy_targets(connection: psycopg.AsyncConnection[Any], *, after: int, most: int) -> dict[int, int]:
    """Revisions of the targets above `after` where runs wait for a place; at most `most` of them, in the order of their ids."""
    cursor = await connection.execute(statements("wake")["busy_targets"], {"after": after, "most": most})
    return dict(await cursor.fetchall())


async def busy_tenants(connection: psycopg.AsyncConnection[Any], *, after: str, most: int) -> list[str]:
    """Tenants behind `after` whose runs wait for a place; at most `most` of them, in order."""
    cursor = await connection.execute(statements("wake")["busy_tenants"], {"after": after, "most": most})
    return [tenant for (tenant,) in await cursor.fetchall()]
