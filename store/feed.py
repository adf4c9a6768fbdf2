"""The change feed: which specs and schedules were written since a cursor. Each row once, late commits included.

The cursor is the whole snapshot of the last read. A row is new if its writer was not visible then: its transaction id is at
least xmax, or was in progress (xip). A feed by xmin alone would read everything again while any transaction stays open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.store.statements import statements

_SQL = statements("feed")


@dataclass(frozen=True, slots=True)
class SpecRow:
    """One row of specs."""

    spec_id: int
    kind: str
    rule: str
    max_jitter_s: int


@dataclass(frozen=True, slots=True)
class ChangedSchedule:
    """What planning needs to know of a schedule that was written."""

    id: UUID
    partition: int
    spec_id: int
    phase: int
    jitter_offset_s: int
    timing_version: int
    paused: bool
    from_s: float  # instants before are of older timing, or lie below the floor


async def snapshot(connection: AsyncConnection[Any]) -> str:
    """A cursor that stands at now."""
    row = await (await connection.execute(_SQL["snapshot"])).fetchone()
    assert row is not None
    return str(row[0])


async def specs(connection: AsyncConnection[Any], cursor: str | None) -> tuple[str, list[SpecRow]]:
    """(new cursor, specs written since the old one); without a cursor: all of them."""
    query = _SQL["specs"] if cursor else _SQL["all_specs"]
    rows = await (await connection.execute(query, {"cursor": cursor})).fetchall()
    return _cursor(rows), [SpecRow(*row[1:]) for row in rows if row[0] is None]


async def schedules(
    connection: AsyncConnection[Any], cursor: str, most: int
) -> tuple[str, list[ChangedSchedule] | None]:
    """(new cursor, schedules written since); None in place of the list: more than `most`, plan everything again."""
    rows = await (await connection.execute(_SQL["schedules"], {"cursor": cursor, "most": most + 1})).fetchall()
    changed = [ChangedSchedule(*row[1:]) for row in rows if row[0] is None]
    return _cursor(rows), changed if len(changed) <= most else None


def xmax(cursor: str) -> int:
    """The first transaction id that was not yet given out at a cursor. Going back: another timeline or a restored dump."""
    return int(cursor.split(":")[1])


def _cursor(rows: list[Any]) -> str:
    return str(next(row[0] for row in rows if row[0] is not None))
