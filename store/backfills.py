"""Backfills that people ask for: every occurrence of some schedules in a range of the past, made into runs by scheduler nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bucketd.store.errors import Conflict, NotFound
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "backfills"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill of [from_at, until_at). Filters that are None (labels: empty) match any schedule.

    `runs_created` grows while it is expanded; `finished_at` is None until all its runs exist (not: have ended).
    `error`: what Postgres said when it refused the next runs; the backfill ended there.
    """

    id: int
    tenant: str | None
    name: str | None
    target: str | None
    labels: Mapping[str, str]
    from_at: datetime
    until_at: datetime
    runs_created: int
    created_at: datetime
    finished_at: datetime | None
    cancelled: bool
    error: str | None = None


def create(
    tenant: str | None,
    name: str | None,
    target_id: int | None,
    labels: str | None,
    from_at: datetime,
    until_at: datetime,
) -> Operation[Backfill]:
    """Asks for a backfill; `labels` is JSON text."""
    params = {
        "tenant": tenant,
        "name": name,
        "target_id": target_id,
        "labels": labels,
        "from_at": from_at,
        "until_at": until_at,
    }
    rows = yield Query(statements(_SQL)["create"], params)
    return (yield from get(rows[0][0]))


def list_before(before: int | None, open_only: bool, limit: int) -> Operation[list[Backfill]]:
    """At most `limit` backfills, newest first, of ids below `before`."""
    rows = yield Query(statements(_SQL)["list"], {"id": None, "before": before, "open": open_only, "limit": limit})
    return [_backfill(row) for row in rows]


def get(backfill_id: int) -> Operation[Backfill]:
    """The backfill of this id. Raises NotFound."""
    rows = yield Query(statements(_SQL)["list"], {"id": backfill_id, "before": None, "open": False, "limit": 1})
    if not rows:
        raise NotFound(f"expected the id of a backfill, got {backfill_id}, which does not exist")
    return _backfill(rows[0])


def cancel(backfill_id: int) -> Operation[Backfill]:
    """Makes no more runs for it. Raises NotFound, and Conflict if it has ended."""
    rows = yield Query(statements(_SQL)["cancel"], {"id": backfill_id})
    found = yield from get(backfill_id)
    if not rows:
        raise Conflict(f"backfill {backfill_id} has {'been cancelled' if found.cancelled else 'finished'} already")
    return found


def unfinished(made: Backfill) -> Operation[int]:
    """Runs in its range, of schedules that it chose, that wait or are being called; those of a backfill that overlaps it count too."""
    params = {
        "tenant": made.tenant,
        "name": made.name,
        "target": made.target,
        "labels": json.dumps(dict(made.labels)),
        "from_at": made.from_at,
        "until_at": made.until_at,
    }
    rows = yield Query(statements(_SQL)["unfinished"], params)
    return int(rows[0][0])


def _backfill(row: Row) -> Backfill:
    id_, tenant, name, target, labels, *rest = row
    from_at, until_at, created, created_at, finished_at, cancelled, error = rest
    return Backfill(
        id_, tenant, name, target, json.loads(labels or "{}"), from_at.astimezone(UTC), until_at.astimezone(UTC), created,
        created_at.astimezone(UTC), finished_at and finished_at.astimezone(UTC), cancelled, error,
    )  # fmt: skip
