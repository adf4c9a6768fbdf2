"""Pauses that end by themselves."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from bucketd.store.statements import statements

_SQL = statements("pauses")
MOST = 5_000  # a statement


async def lift(connection: AsyncConnection[Any], ahead_s: float) -> int:
    """Resumes schedules whose pause ends within `ahead_s`, at most MOST; how many. None of them fires before its pause ends."""
    return (await connection.execute(_SQL["lift"], {"ahead_s": ahead_s, "most": MOST})).rowcount
