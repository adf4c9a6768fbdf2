"""Claims: one row a batch of runs that a runner holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg

from bucketd.store.arrays import Instants, Int8s, Uuids, int8s
from bucketd.store.statements import statements


def new_claim() -> int:
    """A claim nobody has: random, positive, of 63 bits."""
    return secrets.randbits(63) or 1


async def sweep_lost(
    connection: psycopg.AsyncConnection[Any],
    runner_id: UUID,
    known: Iterable[int],
    *,
    older_than_s: float,
    called: bool = False,
) -> tuple[int, int]:
    """Frees what this runner holds under claims that are not `known` to it; (claims, runs) freed.

    `called`: they may have been called, for results were lost with a piece of Postgres's history; then the attempt counts.
    `known` must be read before the call, and hold every claim the runner may still send or resolve.
    """
    parameters = {"runner": runner_id, "known": int8s(known), "older_than_s": older_than_s, "called": called}
    row = await (await connection.execute(statements("claims")["sweep"], parameters)).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


async def taken_away(
    connection: psycopg.AsyncConnection[Any], ids: Sequence[bytes], ats: Sequence[bytes], claims: Sequence[bytes]
) -> list[int]:
    """Places (from 0) of the runs that their claims do not hold any more; elements as in the arrays."""
    parameters = {"ids": Uuids(ids), "ats": Instants(ats), "claims": Int8s(claims)}
    rows = await (await connection.execute(statements("claims")["taken_away"], parameters)).fetchall()
    return [n - 1 for (n,) in rows]
