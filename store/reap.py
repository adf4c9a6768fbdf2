"""Recovery of what dead runners held."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.store.statements import statements

_SQL = statements("reap")
CLAIMS = 200  # a pass: each may hold thousands of runs


async def bury(connection: AsyncConnection[Any], dead_after_s: float) -> list[tuple[UUID, str, int]]:
    """Marks runners without a heartbeat as dead; returns (incarnation, host, pid) of those that died now."""
    rows = await (await connection.execute(_SQL["bury"], {"dead_after_s": dead_after_s})).fetchall()
    return [(row[0], row[1], row[2]) for row in rows]


async def recover(connection: AsyncConnection[Any]) -> tuple[int, int]:
    """(claims, runs) that lost their runner and wake again; one transaction, at most CLAIMS claims."""
    async with connection.transaction():
        rows = await (await connection.execute(_SQL["claims"], {"most": CLAIMS})).fetchall()
        if not rows:
            return 0, 0
        claims = [claim for claim, _ in rows]
        instants = sorted({instant for _, some in rows for instant in some})
        runs = 0
        if instants:
            parameters = {"claims": claims, "instants": instants, "low": instants[0], "high": instants[-1]}
            runs = (await connection.execute(_SQL["recover"], parameters)).rowcount
        await connection.execute(_SQL["drop_claims"], {"claims": claims})
        return len(claims), runs


async def free_stranded(connection: AsyncConnection[Any]) -> int:
    """Judges rows that are held though nothing is on hold any more, as their release would have; returns how many."""
    row = await (await connection.execute(_SQL["stranded"])).fetchone()
    if not row or not row[0]:
        return 0
    rows = await (await connection.execute(statements("holds")["judge"])).fetchall()
    return sum(count for _, count in rows)


async def forget(connection: AsyncConnection[Any]) -> None:
    """Deletes rows of runners that have been dead for an hour and hold nothing."""
    await connection.execute(_SQL["forget"])


async def orphans(connection: AsyncConnection[Any]) -> int:
    """Recovers running rows without a claim row; more than zero is a defect somewhere."""
    return (await connection.execute(_SQL["orphans"])).rowcount
