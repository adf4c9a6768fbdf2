"""Backfills in Postgres: what is owed, the next schedules of it, and the rows it becomes. In the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from bucketd.store.statements import statements

_SQL = statements("expand")


class Owed(NamedTuple):
    """An open backfill, locked: its filter or partition, its range in epoch seconds, and how far it has come."""

    backfill_id: int
    kind: str
    tenant: str | None
    name: str | None
    target_id: int | None
    labels: dict[str, str] | None
    partition: int | None
    from_s: int
    until_s: int
    cursor_id: UUID | None
    cursor_at_s: int | None
    now_s: float
    days_from_s: int  # below, no row can be written any more


class Filed(NamedTuple):
    """A schedule of a user's backfill."""

    schedule_id: UUID
    spec_id: int
    phase: int
    jitter_offset_s: int
    tenant: str
    target_id: int


class Unwatched(NamedTuple):
    """A schedule of a partition in a window that nobody settled; its current timing holds from `from_s` to `ends_s`.

    Whatever its timing was, nothing below `floor_s` counts.
    """

    schedule_id: UUID
    spec_id: int
    phase: int
    jitter_offset_s: int
    from_s: float
    floor_s: float
    ends_s: float | None
    catch_up_cap: int  # 0 if it catches nothing up


async def anything_owed(connection: AsyncConnection[Any]) -> bool:
    """Whether any backfill is open."""
    row = await (await connection.execute(_SQL["anything"])).fetchone()
    return bool(row and row[0])


async def next_owed(connection: AsyncConnection[Any]) -> Owed | None:
    """The oldest open backfill that nobody else has in hand."""
    row = await (await connection.execute(_SQL["next"])).fetchone()
    return Owed(*row) if row else None


async def watch(connection: AsyncConnection[Any], partition: int) -> None:
    """Keeps settling of the partition out until the end of the transaction."""
    await connection.execute(_SQL["watch"], {"partition": partition})


async def waiting(connection: AsyncConnection[Any], most: int) -> int:
    """Background rows that are due and wait for a runner, counted up to `most`."""
    row = await (await connection.execute(_SQL["waiting"], {"most": most})).fetchone()
    assert row is not None
    return int(row[0])


async def user_schedules(connection: AsyncConnection[Any], owed: Owed, most: int) -> list[Filed]:
    """The next schedules of a user's backfill, the one it stopped in first."""
    parameters = {
        "cursor_id": owed.cursor_id,
        "tenant": owed.tenant,
        "name": owed.name,
        "target_id": owed.target_id,
        "labels": None if owed.labels is None else Jsonb(owed.labels),
        "most": most,
    }
    return [Filed(*row) for row in await (await connection.execute(_SQL["user_schedules"], parameters)).fetchall()]


async def settle_schedules(connection: AsyncConnection[Any], owed: Owed, most: int) -> list[Unwatched]:
    """The next schedules of a partition's window."""
    parameters = {"partition": owed.partition, "cursor_id": owed.cursor_id, "most": most}
    return [
        Unwatched(*row) for row in await (await connection.execute(_SQL["settle_schedules"], parameters)).fetchall()
    ]


async def rows_of(connection: AsyncConnection[Any], ranges: Mapping[UUID, tuple[int, int]]) -> dict[UUID, int]:
    """Numbers of rows that these schedules have with instants in [low, high); none: left out."""
    if not ranges:
        return {}
    lows, highs = zip(*ranges.values(), strict=True)
    parameters = {
        "ids": list(ranges), "lows": list(lows), "highs": list(highs), "low": min(lows), "high": max(highs),
    }  # fmt: skip
    return dict(await (await connection.execute(_SQL["rows_of"], parameters)).fetchall())


async def insert(connection: AsyncConnection[Any], rows: Sequence[tuple[Filed, int]]) -> int:
    """Writes occurrences as deferred background runs; returns how many had no row before."""
    parameters = {
        "ids": [filed.schedule_id for filed, _ in rows],
        "ats": [at_s for _, at_s in rows],
        "tenants": [filed.tenant for filed, _ in rows],
        "targets": [filed.target_id for filed, _ in rows],
        "jitters": [filed.jitter_offset_s for filed, _ in rows],
    }
    return (await connection.execute(_SQL["insert"], parameters)).rowcount


async def move(
    connection: AsyncConnection[Any],
    owed: Owed,
    cursor: tuple[UUID | None, int | None],
    created: int,
    *,
    done: bool,
) -> None:
    """Stores how far the expansion has come."""
    cursor_id, cursor_at_s = cursor
    parameters = {"backfill_id": owed.backfill_id, "cursor_id": cursor_id, "cursor_at": cursor_at_s}
    await connection.execute(_SQL["move"], {**parameters, "created": created, "done": done})


async def refuse(connection: AsyncConnection[Any], owed: Owed, error: str) -> None:
    """Ends a backfill that cannot go on; its cursor stays where it came to."""
    await connection.execute(_SQL["refuse"], {"backfill_id": owed.backfill_id, "error": error})
