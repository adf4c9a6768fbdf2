"""Tenants that have a cap. A tenant needs no row to exist: whoever has schedules is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bucketd.store.errors import NotFound
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "tenants"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant with a cap. `created` and `changed` tell what a put did; they are False when the tenant was only read."""

    name: str
    max_running: int  # runs at once, in the whole cluster
    created_at: datetime
    updated_at: datetime
    created: bool = False
    changed: bool = False


def put(name: str, max_running: int) -> Operation[Tenant]:
    """Gives a tenant a cap, or another one; writes nothing if it has it already."""
    written = yield Query(statements(_SQL)["put"], {"name": name, "max_running": max_running})
    return replace((yield from get(name)), created=bool(written) and written[0][0], changed=bool(written))


def get(name: str) -> Operation[Tenant]:
    """The tenant of this name. Raises NotFound: it has no cap."""
    rows = yield Query(statements(_SQL)["list"], {"name": name, "after": None, "limit": 1})
    if not rows:
        raise _missing(name)
    return _tenant(rows[0])


def list_after(after: str | None, limit: int) -> Operation[list[Tenant]]:
    """At most `limit` tenants with a cap whose names follow `after`, by name."""
    rows = yield Query(statements(_SQL)["list"], {"name": None, "after": after, "limit": limit})
    return [_tenant(row) for row in rows]


def delete(name: str) -> Operation[None]:
    """Takes a tenant's cap away. Raises NotFound: it has none."""
    if not (yield Query(statements(_SQL)["delete"], {"name": name})):
        raise _missing(name)


def _missing(name: str) -> NotFound:
    return NotFound(
        f"expected the name of a tenant with a cap, got {name!r}, which has none; give it one with tenants.put"
    )


def _tenant(row: Row) -> Tenant:
    name, max_running, created_at, updated_at = row
    return Tenant(name, max_running, created_at.astimezone(UTC), updated_at.astimezone(UTC))
