"""The audit log: who changed what, written by triggers in the database, so that raw SQL is in it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "audit"
KINDS = ("schedule", "target", "tenant", "hold", "calendar", "backfill", "run")
FORGET_ROWS = 20_000  # a statement


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `changes` maps a column to (old, new), or to None where that is not told (payloads, headers)."""

    id: int
    at: datetime
    actor: str
    kind: str
    action: str
    tenant: str | None
    name: str
    object_id: str
    revision: int | None
    changes: Mapping[str, Any]


def act_as(actor: str) -> Operation[None]:
    """Names who acts in the rest of the transaction."""
    yield Query(statements(_SQL)["act_as"], {"actor": actor})


def note(action: str, tenant: str | None, name: str, object_id: str, *, kind: str = "run") -> Operation[None]:
    """Notes a deed that changes no definition."""
    values = {"kind": kind, "action": action, "tenant": tenant, "name": name, "object_id": object_id}
    yield Query(statements(_SQL)["note"], values)


def list_before(filters: Mapping[str, Any], before: int | None, limit: int) -> Operation[list[Change]]:
    """At most `limit` changes below an id, newest first. Filters: tenant, name, kind, actor, from_at, to_at."""
    known = dict.fromkeys(("tenant", "name", "kind", "actor", "from_at", "to_at")) | dict(filters)
    rows = yield Query(statements(_SQL)["list"], {**known, "before": before, "limit": limit})
    return [
        Change(id_, at.astimezone(UTC), actor, kind, action, tenant, name, object_id, revision, changes or {})
        for id_, at, actor, kind, action, tenant, name, object_id, revision, changes in rows
    ]


async def forget(connection: AsyncConnection[Any], days: int) -> int:
    """Deletes changes older than so many days, at most FORGET_ROWS; how many."""
    return (await connection.execute(statements(_SQL)["forget"], {"days": days, "most": FORGET_ROWS})).rowcount
