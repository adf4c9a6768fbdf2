"""Runs as people look at them: one by its id, pages newest first, and cancelling."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store.errors import Conflict, NotFound
from bucketd.store.model import RunStatus, run_id
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "history"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `name` and `target` are None if the schedule or target was deleted since.

    `attempt`: claims so far. `missed`: older occurrences that this run stands for. `wake_at`: when it is taken next, of a running
    one when its target is to have reported the end; None also for a held run. `failures`: one map a failed attempt (attempt,
    began, at, status, error).
    """

    id: str
    schedule_id: UUID
    scheduled_at: datetime
    name: str | None
    tenant: str
    target: str | None
    status: RunStatus
    origin: str
    attempt: int
    missed: int
    reason: str | None
    http_status: int | None
    failures: tuple[Mapping[str, Any], ...]
    wake_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    background: bool
    jitter_offset_s: int


class Filter(NamedTuple):
    """Which runs; None means any. `until_at` is exclusive."""

    ids: Sequence[UUID] | None
    tenant: str | None
    target_id: int | None
    statuses: Sequence[str] | None
    from_at: datetime | None
    until_at: datetime | None


class Key(NamedTuple):
    """A place in the order of runs."""

    at: datetime
    id: UUID


def get(schedule_id: UUID, at: datetime) -> Operation[Run]:
    """The run of this key. Raises NotFound."""
    rows = yield Query(statements(_SQL)["get"], {"id": schedule_id, "at": at})
    if not rows:
        raise NotFound(
            f"expected the id of a run, got {run_id(schedule_id, at)!r}, which does not exist, or its day was dropped"
        )
    return _run(rows[0])


def scan(runs: Filter, after: Key | None, stretch: int, limit: int) -> Operation[tuple[list[Run], Key | None]]:
    """At most `limit` fitting runs of the next `stretch` ones, and where the stretch ended; None: there was no more."""
    params = {**runs._asdict(), **_after(after), "scan": stretch, "limit": limit}
    rows = yield Query(statements(_SQL)["scan"], params)
    if not rows:
        return [], None
    end, *fitting = rows
    return [_run(row) for row in fitting], Key(end[1].astimezone(UTC), end[0]) if end[8] == stretch else None


def waiting(runs: Filter, after: Key | None, limit: int) -> Operation[list[Run]]:
    """At most `limit` runs that wait for a wake-up, newest first; `runs.statuses` must be given."""
    rows = yield Query(statements(_SQL)["waiting"], {**runs._asdict(), **_after(after), "limit": limit})
    return [_run(row) for row in rows]


def schedule_ids(tenant: str | None, name: str) -> Operation[list[UUID]]:
    """Ids of the schedules of this name."""
    rows = yield Query(statements(_SQL)["ids"], {"tenant": tenant, "name": name})
    return [row[0] for row in rows]


def cancel(schedule_id: UUID, at: datetime) -> Operation[Run]:
    """Cancels a run that is not final. Raises NotFound, and Conflict if it is."""
    rows = yield Query(statements(_SQL)["cancel"], {"id": schedule_id, "at": at})
    run = yield from get(schedule_id, at)
    if not rows:
        raise Conflict(f"run {run.id} is {run.status} already; only an unfinished run can be cancelled")
    return run


def _after(key: Key | None) -> dict[str, Any]:
    return {"after_at": key and key.at, "after_id": key and key.id}


def _run(row: Row) -> Run:
    schedule_id, at, name, tenant, target, state, origin, attempt, missed, reason, code, failures, *times = row
    wake_at, started_at, finished_at = (time and time.astimezone(UTC) for time in times[:3])
    return Run(
        run_id(schedule_id, at), schedule_id, at.astimezone(UTC), name, tenant, target, RunStatus(state), origin, attempt, missed,
        reason, code, tuple(json.loads(failures)) if failures else (), wake_at, started_at, finished_at, times[3], times[4],
    )  # fmt: skip
