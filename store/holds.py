"""Holds: nothing of a tenant, of a target, or of anybody starts until the release, and nothing due meanwhile is forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from bucketd.store.errors import NotFound
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "holds"


@dataclass(frozen=True, slots=True)
class Hold:
    """What is held: `scope` is all, tenant or target."""

    id: int
    scope: str
    tenant: str | None
    target: str | None
    reason: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Release:
    """What became of the held runs, counted: started now (`deferred`, `retrying`), or ended (`skipped`, `cancelled`)."""

    deferred: int = 0
    retrying: int = 0
    skipped: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """What to hold or release."""

    scope: str
    tenant: str | None = None
    target_id: int | None = None

    def params(self) -> dict[str, str | int | None]:
        return {"scope": self.scope, "tenant": self.tenant, "target_id": self.target_id}


def hold(scope: Scope, reason: str) -> Operation[None]:
    """Holds; no confirm or wake that starts after the commit takes a run of it. Idempotent."""
    yield Query(statements(_SQL)["hold"], {**scope.params(), "reason": reason})


def list_all() -> Operation[list[Hold]]:
    """All holds, oldest first."""
    rows = yield Query(statements(_SQL)["list"])
    return [_hold(row) for row in rows]


def release(scope: Scope, shown: str) -> Operation[Release]:
    """Ends a hold and judges what no other hold covers, in one transaction of the caller's. Raises NotFound if there is none."""
    rows = yield Query(statements(_SQL)["release"], scope.params())
    if not rows:
        raise NotFound(f"expected a hold of {shown}, got none; see holds()")
    return (yield from judge())


def judge() -> Operation[Release]:
    """Judges all held runs that no hold covers. Safe to repeat; also heals rows that were held while their release committed."""
    rows = yield Query(statements(_SQL)["judge"])
    return Release(**dict(rows))


def _hold(row: Row) -> Hold:
    id_, scope, tenant, target, reason, created_at = row
    return Hold(id_, scope, tenant, target, reason, created_at.astimezone(UTC))
