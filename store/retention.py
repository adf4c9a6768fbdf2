"""Days of runs: made ahead, closed with an index, dropped behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, sql

from bucketd.store.statements import statements

_SQL = statements("retention")


@dataclass(frozen=True, slots=True)
class Day:
    """One day of runs: its table, its first instant, whether retention lets it go, whether it closed without its index.

    `detaching`: None for a day in use; a drop that was broken off leaves True (detach pending) or False (only to be dropped).
    """

    table: str
    starts_at: datetime
    expired: bool
    unindexed: bool
    detaching: bool | None


async def make_days(connection: AsyncConnection[Any], days_ahead: int) -> int:
    """Makes the days that are missing from yesterday to `days_ahead`; returns how many."""
    row = await (await connection.execute(_SQL["make_days"], {"days_ahead": days_ahead})).fetchone()
    assert row is not None
    return int(row[0])


async def raise_floor(connection: AsyncConnection[Any], retention_days: int) -> bool:
    """Raises the retention floor to today minus `retention_days`; whether it rose."""
    return (await connection.execute(_SQL["raise_floor"], {"retention_days": retention_days})).rowcount > 0


async def days(connection: AsyncConnection[Any]) -> list[Day]:
    """All days there are, oldest first."""
    return [Day(*row) for row in await (await connection.execute(_SQL["days"])).fetchall()]


async def drop(connection: AsyncConnection[Any], day: Day) -> None:
    """Detaches a day without stopping readers and writers of the others, then drops it; goes on where a drop broke off."""
    table = sql.Identifier("bucketd", day.table)
    if day.detaching is not False:
        how = sql.SQL("finalize" if day.detaching else "concurrently")
        await _outside(connection, sql.SQL("alter table bucketd.runs detach partition {} {}").format(table, how))
    await connection.execute(sql.SQL("drop table {}").format(table))


async def index(connection: AsyncConnection[Any], day: Day) -> None:
    """Builds the index by schedule of a day that is closed: nothing is inserted there any more, history is read there."""
    name = f"{day.table}_schedule"
    # One that was broken off is there, invalid, and would be taken for the index.
    await _outside(connection, sql.SQL("drop index concurrently if exists {}").format(sql.Identifier("bucketd", name)))
    statement = sql.SQL("create index concurrently {} on {} (schedule_id, scheduled_at)")
    await _outside(connection, statement.format(sql.Identifier(name), sql.Identifier("bucketd", day.table)))


async def _outside(connection: AsyncConnection[Any], statement: sql.Composed) -> None:
    """By a plain cursor: these refuse to run inside a transaction, which behind a pooler ours would bring along."""
    await AsyncCursor(connection).execute(statement)


async def sweep(connection: AsyncConnection[Any]) -> None:
    """Deletes closed versions and past one-shots that lie below the floor."""
    await connection.execute(_SQL["sweep"])
