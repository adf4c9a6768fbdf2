"""The change feed: which specs and schedules were written since a cursor. Each row once, late commits included.

The cursor is the whole snapshot of the last read, with the history that it is of. A row is new if its writer was not visible then:
its transaction id is at least xmax, or was in progress (xip). A feed by xmin alone would read everything again while any transaction
stays open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.store.statements import statements

_SQL = statements("feed")


class Cursor(NamedTuple):
    """How far somebody has read, and in which history of the database."""

    history: str
    snapshot: str

    def follows(self, earlier: Cursor) -> bool:
        """Whether what was written since `earlier` is all that has changed. Else rows that were read then may be gone."""
        return self.history == earlier.history and xmax(self.snapshot) >= xmax(earlier.snapshot)


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
    head: bytes  # of its fires
    paused: bool
    from_s: float  # instants before are of older timing, or lie below the floor


async def snapshot(connection: AsyncConnection[Any]) -> Cursor:
    """A cursor that stands at now."""
    row = await (await connection.execute(_SQL["snapshot"])).fetchone()
    assert row is not None
    return Cursor(*row)


async def specs(connection: AsyncConnection[Any], cursor: Cursor | None) -> tuple[Cursor, list[SpecRow]]:
    """(new cursor, specs written since the old one); without a cursor: all of them."""
    query = _SQL["specs"] if cursor else _SQL["all_specs"]
    rows = await (await connection.execute(query, {"cursor": cursor and cursor.snapshot})).fetchall()
    return _cursor(rows), [SpecRow(*row[2:]) for row in rows if row[0] is None]


async def schedules(
    connection: AsyncConnection[Any], snapshot: str, most: int
) -> tuple[Cursor, list[ChangedSchedule] | None]:
    """(new cursor, schedules written since); None in place of the list: more than `most`, plan everything again."""
    rows = await (await connection.execute(_SQL["schedules"], {"cursor": snapshot, "most": most + 1})).fetchall()
    changed = [ChangedSchedule(*row[2:]) for row in rows if row[0] is None]
    return _cursor(rows), changed if len(changed) <= most else None


def xmax(snapshot: str) -> int:
    """The first transaction id that was not yet given out at a snapshot. Going back: another timeline or a restored dump."""
    return int(snapshot.split(":")[1])


def _cursor(rows: list[Any]) -> Cursor:
    return Cursor(*next(row[:2] for row in rows if row[0] is not None))
