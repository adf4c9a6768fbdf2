"""Rows of runner incarnations, and the targets that a runner calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row

from bucketd.store.fires import MESSAGE_VERSION
from bucketd.store.keyring import CannotOpen, KeyRing
from bucketd.store.secrets import Secret, opened, why_sealed
from bucketd.store.statements import statements


@dataclass(frozen=True, slots=True)
class CallTarget:
    """A target as a call needs it, at one revision."""

    target_id: int
    revision: int
    name: str
    url: str
    headers: dict[str, str]
    connect_timeout_s: float
    timeout_s: float
    max_attempts: int
    retry_base_s: float
    retry_cap_s: float
    batch_max: int
    batch_linger_ms: int
    batch_by_tenant: bool
    body: str  # envelope or raw
    max_running: int | None
    rate_per_s: float | None
    complete_within_s: int | None  # None: a 202 is a success like any other
    secrets: tuple[Secret, ...] = field(default=(), repr=False)  # newest first; none: it is called unsigned
    why_sealed: str | None = None  # it has a secret that cannot be opened here, so it must not be called


async def join(
    connection: psycopg.AsyncConnection[Any], runner_id: UUID, *, host: str, pid: int, message_version: int = MESSAGE_VERSION
) -> str:
    """Announces a new incarnation, alive from now, and the newest queue messages that it reads; returns the history of Postgres.
    Raises psycopg.errors.UniqueViolation if that id was used before."""
    parameters = {"runner": runner_id, "host": host, "pid": pid, "message_version": message_version}
    row = await (await connection.execute(statements("runners")["join"], parameters)).fetchone()
    assert row is not None
    return str(row[0])


async def beat(connection: psycopg.AsyncConnection[Any], runner_id: UUID, *, dead_after_s: float) -> str | None:
    """Renews the lease; returns the history of Postgres. None: the incarnation is dead for good, and must write nothing more."""
    parameters = {"runner": runner_id, "dead_after_s": dead_after_s}
    row = await (await connection.execute(statements("runners")["beat"], parameters)).fetchone()
    return str(row[0]) if row else None


async def leave(connection: psycopg.AsyncConnection[Any], runner_id: UUID) -> None:
    """Marks the incarnation dead. Repeating is harmless."""
    await connection.execute(statements("runners")["leave"], {"runner": runner_id})


async def call_targets(
    connection: psycopg.AsyncConnection[Any], target_ids: Iterable[int], ring: KeyRing
) -> list[CallTarget]:
    """These targets as they stand now, their secrets opened by the ring; unknown ids are left out."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(statements("runners")["targets"], {"targets": list(target_ids)})
    return [_call_target(row, ring) for row in await cursor.fetchall()]


def _call_target(row: DictRow, ring: KeyRing) -> CallTarget:
    newest, older, until_s = row.pop("sealed"), row.pop("old_sealed"), row.pop("old_until_s")
    sealed = [(text, end_s) for text, end_s in ((newest, None), (older, until_s)) if text is not None]
    try:
        return CallTarget(**row, secrets=opened(sealed, ring))
    except CannotOpen as error:
        return CallTarget(**row, why_sealed=why_sealed(error))
