"""Rows with a due wake_at: claimed for their next attempt, or ended by a verdict."""

from __future__ import annotations

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


async def take(
    connection: psycopg.AsyncConnection[Any], runner_id: UUID, claim: int, *, room: int, dead_after_s: float
) -> list[Woken]:
    """Takes up to `room` due rows under `claim`; none if the runner is dead by Postgres's reckoning. Raises psycopg.Error."""
    cursor = connection.cursor(binary=True, row_factory=args_row(Woken))
    cursor.adapters.register_loader("json", TextBinaryLoader)
    parameters = {"runner": runner_id, "claim": claim, "room": room, "dead_after_s": dead_after_s}
    await cursor.execute(statements("wake")["take"], parameters)
    return await cursor.fetchall()
