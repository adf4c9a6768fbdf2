"""An operation is written once, as a generator that yields what to send and receives rows; two drivers run it, sync and async.

The drivers make cursors of their own on whatever connection they are given, so its row factory, cursor factory and search_path
do not matter; only those of our own connections, which may stand behind a pooler, have our cursors. They never begin, commit or roll
back: who owns the connection owns the transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.rows import tuple_row

from bucketd.store import pooler

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]


@dataclass(frozen=True, slots=True)
class Query:
    """One statement with named parameters; the answer is its rows (none for a statement that returns nothing)."""

    sql: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Copy:
    """Rows in COPY's text format for `copy .. from stdin`; the answer is an empty list."""

    sql: str
    data: str


Step: TypeAlias = Query | Copy
T = TypeVar("T")
Operation: TypeAlias = Generator[Step, Rows, T]


def drive(operation: Operation[T], connection: psycopg.Connection[Any]) -> T:
    """Runs an operation to its end and returns its result. Raises what psycopg or the operation raises."""
    kind = connection.cursor_factory if isinstance(connection, pooler.Connection) else psycopg.Cursor
    cursor = kind(connection, row_factory=tuple_row)
    try:
        step = next(operation)
        while True:
            step = operation.send(_run(cursor, step))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        operation.close()
        cursor.close()


async def drive_async(operation: Operation[T], connection: psycopg.AsyncConnection[Any]) -> T:
    """`drive` for an async connection."""
    kind = connection.cursor_factory if isinstance(connection, pooler.AsyncConnection) else psycopg.AsyncCursor
    cursor = kind(connection, row_factory=tuple_row)
    try:
        step = next(operation)
        while True:
            step = operation.send(await _run_async(cursor, step))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        operation.close()
        await cursor.close()


def _run(cursor: psycopg.Cursor[Row], step: Step) -> Rows:
    if isinstance(step, Copy):
        with cursor.copy(step.sql.encode()) as copy:
            copy.write(step.data)
        return []
    cursor.execute(step.sql.encode(), step.params)
    return cursor.fetchall() if cursor.description else []


async def _run_async(cursor: psycopg.AsyncCursor[Row], step: Step) -> Rows:
    if isinstance(step, Copy):
        async with cursor.copy(step.sql.encode()) as copy:
            await copy.write(step.data)
        return []
    await cursor.execute(step.sql.encode(), step.params)
    return await cursor.fetchall() if cursor.description else []
