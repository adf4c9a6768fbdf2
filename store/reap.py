"""Recovery of what dead runners held."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from bucketd.store import holds
from bucketd.store.operation import drive_async
from bucketd.store.statements import statements

_SQL = statements("reap")
CLAIMS = 200  # a pass: each may hold thousands of runs
STRANDED_STEPS = 20  # steps of a release a pass, some seconds ..
STRANDED_IDLE = 4  # .. but no more than this that find nothing


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
            row = await (await connection.execute(_SQL["recover"], parameters)).fetchone()
            runs = row[0] if row else 0
        await connection.execute(_SQL["drop_claims"], {"claims": claims})
        return len(claims), runs


async def free_stranded(connection: AsyncConnection[Any]) -> int:
    """Judges held rows that no hold covers, as their release would have: it was interrupted, or a wake passed it; how many.

    While something is on hold, rows that it covers are in the way: a pass looks at a few steps of them from anywhere on, so that the
    next pass, or another node's, looks elsewhere. One that finds something goes on.
    """
    row = await (await connection.execute(_SQL["stranded"])).fetchone()
    if not row or not row[0]:
        return 0
    place = holds.Place(uuid4(), "-infinity") if row[1] else holds.START
    judged, idle = 0, 0
    for _ in range(STRANDED_STEPS):
        async with connection.transaction():
            step = await drive_async(holds.judge(place), connection)
        judged += step.counts.runs
        idle += not step.counts.runs
        if idle == STRANDED_IDLE or (step.after is None and not row[1]):
            break
        place = step.after or holds.START
    return judged


async def forget(connection: AsyncConnection[Any]) -> None:
    """Deletes rows of runners that have been dead for an hour and hold nothing, and slots of runs that ended an hour ago."""
    await connection.execute(_SQL["forget"])
    await connection.execute(_SQL["forget_slots"])


async def orphans(connection: AsyncConnection[Any], *, older_than_s: float) -> int:
    """Recovers running rows without a claim row; more than zero is a defect somewhere, or follows a failover that lost commits."""
    return (await connection.execute(_SQL["orphans"], {"older_than_s": older_than_s})).rowcount
