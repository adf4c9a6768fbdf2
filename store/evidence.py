"""What Postgres knows about one schedule and one instant: the timing that held, who did what, rows, watermark, holds. Reads only.

Each read is bounded whatever the tables hold: probes of keys, and few rows of an index. How far a partition is settled is to be read
before the rows: what was settled by then is seen in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "evidence"
VERSIONS = 20  # closed timings that are looked at
DEEDS = 200  # of the audit log, on each side of the instant


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule as it is now. `rule` may be one that cannot be computed; then `error` says why, once a node has tried."""

    id: UUID
    partition: int
    rule: str
    error: str | None
    failed_at: datetime | None
    expression: str
    phase: int
    jitter_offset_s: int
    timing_version: int
    timing_from: datetime
    floor: datetime
    starts_at: datetime | None
    ends_at: datetime | None
    max_runs: int | None
    paused: bool
    pause_reason: str | None
    paused_until: datetime | None
    exclude_dates: Sequence[date]
    calendars: Sequence[str]
    created_at: datetime
    target_id: int


@dataclass(frozen=True, slots=True)
class Found:
    """The cluster's clock, from where on `runs` has days, and the schedule; None: there is none of that name."""

    now: datetime
    days_from: datetime
    schedule: Standing | None


@dataclass(frozen=True, slots=True)
class Service:
    """Who works for a partition. `best_settled_through`: the watermark of the partition that is furthest."""

    settled_through: datetime
    owner: UUID | None
    best_settled_through: datetime
    owners: int
    runners: int


@dataclass(frozen=True, slots=True)
class Version:
    """A closed timing: it held for the instants in [valid_from, valid_until)."""

    number: int
    rule: str | None
    phase: int
    jitter_offset_s: int
    valid_from: datetime
    valid_until: datetime


@dataclass(frozen=True, slots=True)
class Deed:
    """An entry of the audit log about a schedule or a run; `changes` as in `audit.Change`."""

    at: datetime
    actor: str
    action: str
    object_id: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Carrier:
    """A row that counts `missed` older occurrences, and how many rows lie between the instant asked about and it."""

    at: datetime
    missed: int
    rows_before: int


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A hold that covers the schedule; `actor` is None if the audit log has forgotten. kind: user, or breaker, with its next probe."""

    kind: str
    scope: str
    tenant: str | None
    target: str | None
    reason: str
    created_at: datetime
    probe_at: datetime | None
    actor: str | None


@dataclass(frozen=True, slots=True)
class Owed:
    """A window of due instants that nobody watched, (from_at, until_at], not yet judged for the schedule; `error`: given up."""

    from_at: datetime
    until_at: datetime
    error: str | None
    done: int
    schedules: int


def standing(tenant: str, name: str) -> Operation[Found]:
    """The schedule of this name, if there is one."""
    rows = yield Query(statements(_SQL)["standing"], {"tenant": tenant, "name": name})
    now, days_from, id_, *rest = _utc(rows[0])
    return Found(now, days_from, None if id_ is None else Standing(id_, *rest))


def service(partition: int, dead_after_s: float) -> Operation[Service]:
    """Who works for the partition; a runner is dead after so many seconds without a heartbeat."""
    rows = yield Query(statements(_SQL)["service"], {"partition": partition, "dead_after_s": dead_after_s})
    return Service(*_utc(rows[0]))


def versions(schedule_id: UUID, at: datetime) -> Operation[list[Version]]:
    """The closed timings nearest to an instant, oldest first; one that never held is none."""
    rows = yield Query(statements(_SQL)["versions"], {"id": schedule_id, "at": at, "most": VERSIONS})
    return sorted((Version(*_utc(row)) for row in rows), key=lambda version: version.number)


def deeds(tenant: str, name: str, at: datetime) -> Operation[list[Deed]]:
    """What was done to schedules of this name around an instant, oldest first."""
    values = {"tenant": tenant, "name": name, "at": at, "most": DEEDS}
    return sorted(_deeds((yield Query(statements(_SQL)["deeds"], values))), key=lambda deed: deed.at)


def run_deeds(tenant: str, name: str, run_id: str) -> Operation[list[Deed]]:
    """What people did to a run, newest first."""
    values = {"tenant": tenant, "name": name, "run_id": run_id}
    return _deeds((yield Query(statements(_SQL)["run_deeds"], values)))


def rows_at(ids: Sequence[UUID], instants: Sequence[datetime]) -> Operation[list[tuple[datetime, UUID]]]:
    """(instant, schedule) of the rows that these schedules have at these instants, ascending."""
    values = {"ids": list(ids), "instants": list(instants), "low": min(instants), "high": max(instants)}
    rows = yield Query(statements(_SQL)["rows"], values)
    return sorted((at.astimezone(UTC), id_) for id_, at in rows)


def carrier(schedule_id: UUID, instants: Sequence[datetime]) -> Operation[Carrier | None]:
    """The first row at one of these instants that counts missed ones."""
    if not instants:
        return None
    values = {"id": schedule_id, "instants": list(instants), "low": min(instants), "high": max(instants)}
    rows = yield Query(statements(_SQL)["carrier"], values)
    return Carrier(*_utc(rows[0])) if rows else None


def holds(tenant: str, target_id: int) -> Operation[list[HeldBy]]:
    """The holds that cover a schedule, oldest first."""
    rows = yield Query(statements(_SQL)["holds"], {"tenant": tenant, "target_id": target_id})
    return [HeldBy(*_utc(row)) for row in rows]


def owed(partition: int, schedule_id: UUID, due: datetime) -> Operation[Owed | None]:
    """The window that still owes the schedule its verdict on what was due then."""
    rows = yield Query(statements(_SQL)["owed"], {"partition": partition, "id": schedule_id, "due": due})
    return Owed(*_utc(rows[0])) if rows else None


def calendars(tenant: str, names: Sequence[str], days: Sequence[date]) -> Operation[list[tuple[str, date]]]:
    """Which of these calendars have one of these dates, and which."""
    if not names or not days:
        return []
    rows = yield Query(statements(_SQL)["calendars"], {"tenant": tenant, "names": list(names), "days": list(days)})
    return [(row[0], row[1]) for row in rows]


def _deeds(rows: Sequence[Row]) -> list[Deed]:
    return [Deed(at.astimezone(UTC), actor, action, id_, changes or {}) for at, actor, action, id_, changes in rows]


def _utc(row: Row) -> list[Any]:
    return [value.astimezone(UTC) if isinstance(value, datetime) else value for value in row]
