"""Holds: nothing of a tenant, of a target, or of anybody starts until the release, and nothing due meanwhile is forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from bucketd.store.errors import NotFound
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements
from bucketd.store.walks import by_index

_SQL = "holds"
STEP_ROWS = 10_000  # held rows a step of a release: a quarter of a second, far below the statement time-out


@dataclass(frozen=True, slots=True)
class Hold:
    """What is held: `scope` is all, tenant or target.

    kind: user, or breaker: of a target that fails, put up by a runner. A breaker has opened `openings` times in a row, and lets some
    runs through at `probe_at` to see.
    """

    id: int
    kind: str
    scope: str
    tenant: str | None
    target: str | None
    reason: str
    created_at: datetime
    openings: int | None = None
    probe_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """What became of the held runs, counted: started now (`deferred`, `retrying`), or ended (`skipped`, `cancelled`).

    `catch_up`: those of the deferred ones that go behind live work.
    """

    deferred: int = 0
    retrying: int = 0
    skipped: int = 0
    cancelled: int = 0
    catch_up: int = 0

    def __add__(self, other: Release) -> Release:
        return Release(
            self.deferred + other.deferred,
            self.retrying + other.retrying,
            self.skipped + other.skipped,
            self.cancelled + other.cancelled,
            self.catch_up + other.catch_up,
        )

    @property
    def runs(self) -> int:
        """All that were judged."""
        return self.deferred + self.retrying + self.skipped + self.cancelled


class Place(NamedTuple):
    """How far a walk through the held rows has come: the key of the last one. Instants as text may be infinite."""

    schedule_id: UUID
    scheduled_at: datetime | str


START = Place(UUID(int=0), "-infinity")


class Judged(NamedTuple):
    """One step of a release: its counts, and where the next one goes on; None: it was the last."""

    counts: Release
    after: Place | None


@dataclass(frozen=True, slots=True)
class Scope:
    """What to hold or release. kind: user or breaker; one does not touch the other."""

    scope: str
    tenant: str | None = None
    target_id: int | None = None
    kind: str = "user"

    def params(self) -> dict[str, str | int | None]:
        return {"kind": self.kind, "scope": self.scope, "tenant": self.tenant, "target_id": self.target_id}


def hold(scope: Scope, reason: str) -> Operation[None]:
    """Holds; no confirm or wake that starts after the commit takes a run of it. Idempotent."""
    yield Query(statements(_SQL)["hold"], {**scope.params(), "reason": reason})


def list_all() -> Operation[list[Hold]]:
    """All holds, oldest first."""
    rows = yield Query(statements(_SQL)["list"])
    return [_hold(row) for row in rows]


def find(scope: Scope, shown: str) -> Operation[int]:
    """The id of a hold. Raises NotFound if there is none."""
    return _id((yield Query(statements(_SQL)["find"], scope.params())), shown)


def release(scope: Scope, shown: str) -> Operation[int]:
    """Ends a hold; its id. What it held is judged in steps afterwards. Raises NotFound if there is none."""
    return _id((yield Query(statements(_SQL)["release"], scope.params())), shown)


def judge(
    after: Place = START, *, without: int | None = None, dry_run: bool = False, most: int | None = None
) -> Operation[Judged]:
    """Judges the next held rows that no hold covers, at most `most` of STEP_ROWS, in a transaction of the caller's.

    In a transaction for each step, whoever stops halfway leaves rows that the next walk judges the same way: it is safe to repeat,
    and so rows are healed that were held while their release committed. dry_run: only counts, as if the hold `without` were gone.
    """
    params = {
        "after_id": after.schedule_id,
        "after_at": after.scheduled_at,
        "most": most or STEP_ROWS,
        "without": without,
        "dry": dry_run,
    }
    rows = yield from by_index(Query(statements(_SQL)["judge"], params))
    seen, last_id, last_at, deferred, catch_up, retrying, skipped, cancelled = rows[0]
    counts = Release(deferred, retrying, skipped, cancelled, catch_up)
    return Judged(counts, Place(last_id, last_at) if seen == (most or STEP_ROWS) else None)


def _id(rows: list[Row], shown: str) -> int:
    if not rows:
        raise NotFound(f"expected {shown}, got none; see holds()")
    return int(rows[0][0])


def _hold(row: Row) -> Hold:
    id_, kind, scope, tenant, target, reason, created_at, openings, probe_at = row
    if kind == "user":
        return Hold(id_, kind, scope, tenant, target, reason, created_at.astimezone(UTC))
    return Hold(
        id_, kind, scope, tenant, target, reason, created_at.astimezone(UTC), openings, probe_at.astimezone(UTC)
    )
