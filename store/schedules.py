"""Schedules: what people put, read and delete. Timing arrives resolved (a spec and a phase); this module knows no cron."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store.errors import NotFound
from bucketd.store.operation import Copy, Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "schedules"
LIFTED_S = 660  # longer than any horizon, with the time that nodes take to look for pauses that end


class Found(NamedTuple):
    """What exists under a (tenant, name) before a put."""

    id: UUID
    phase: int
    kind: str
    every_s: int | None
    spec_id: int
    revision: int
    max_runs: int | None
    starts_at: datetime | None
    ends_at: datetime | None


class ScheduleRow(NamedTuple):
    """The columns that a put writes, in the order of the staging table. `payload` and `labels` are JSON text."""

    id: UUID
    tenant: str
    name: str
    spec_id: int
    phase: int
    jitter_s: int
    target_id: int
    expression: str
    payload: str
    timeout_s: int | None
    max_attempts: int | None
    retry_base_s: float | None
    retry_cap_s: float | None
    overlap: str
    misfire: str
    misfire_threshold_s: int
    deadline_s: int | None
    labels: str
    paused: bool | None
    starts_at: datetime | None
    ends_at: datetime | None
    catch_up_window_s: int
    catch_up_cap: int
    max_runs: int | None
    exclude_dates: list[date]
    calendars: list[str]


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as it stands in Postgres, with its rule; `floor_s` and `timing_from_s` in epoch seconds."""

    id: UUID
    tenant: str
    name: str
    kind: str
    rule: str
    every_s: int | None
    phase: int
    expression: str
    target: str
    payload: Any
    labels: Mapping[str, str]
    timeout_s: int | None
    overlap: str
    misfire: str
    misfire_threshold_s: int
    deadline_s: int | None
    jitter_s: int
    jitter_offset_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    paused: bool
    revision: int
    created_at: datetime
    updated_at: datetime
    floor_s: float
    timing_from_s: float
    catch_up_window_s: int
    catch_up_cap: int
    pause_reason: str | None
    paused_until: datetime | None
    max_runs: int | None
    exclude_dates: tuple[date, ...]
    calendars: tuple[str, ...]
    max_attempts: int | None  # this and the next two: None, the target's
    retry_base_s: float | None
    retry_cap_s: float | None


class Days(NamedTuple):
    """For which instants `runs` has a day, and the clock."""

    days_from: datetime
    days_through: datetime
    retention_floor: datetime
    now: datetime


def now_s() -> Operation[float]:
    """The cluster's clock, epoch seconds."""
    rows = yield Query(statements(_SQL)["now"])
    return float(rows[0][0])


def find(keys: Sequence[tuple[str, str]]) -> Operation[dict[int, Found]]:
    """The schedules that exist under these (tenant, name) pairs, by place in `keys`."""
    rows = yield Query(
        statements(_SQL)["find"],
        {"tenants": json.dumps([k[0] for k in keys]), "names": json.dumps([k[1] for k in keys])},
    )
    return {ord_ - 1: Found(*rest) for ord_, *rest in rows}


def put(row: ScheduleRow, if_revision: int | None = None) -> Operation[int | None]:
    """Creates or changes a schedule; its revision, or None if nothing was written.

    That is: it is as asked already, the name belongs to another id, or it is not at `if_revision`.
    """
    rows = yield Query(statements(_SQL)["put"], {**row._asdict(), "if_revision": if_revision})
    return int(rows[0][1]) if rows else None


def put_chunk(rows: Sequence[ScheduleRow]) -> Operation[dict[UUID, int]]:
    """`put` for many, in one transaction of the caller's; revisions by id of those that were written.

    Either every row says whether it is paused or none does.
    """
    sql = statements(_SQL)
    yield Query(sql["stage_make"])
    yield Copy(sql["stage_copy"], "".join(map(copy_line, rows)))
    written = yield Query(sql["stage_put"], {"keep_paused": rows[0].paused is None})
    yield Query(sql["stage_drop"])
    return dict(written)


def list_after(
    filters: Mapping[str, Any], after: tuple[str, str] | None, limit: int
) -> Operation[list[StoredSchedule]]:
    """At most `limit` schedules by (tenant, name) after a pair. Filters: tenant, name, target, labels (JSON text), paused, prefix."""
    known = dict.fromkeys(("tenant", "name", "target", "labels", "paused", "prefix")) | dict(filters)
    tenant, name = after or (None, None)
    rows = yield Query(statements(_SQL)["list"], {**known, "after_tenant": tenant, "after_name": name, "limit": limit})
    return [_stored(row) for row in rows]


def get(tenant: str, name: str) -> Operation[StoredSchedule]:
    """The schedule of this name. Raises NotFound."""
    found = yield from list_after({"tenant": tenant, "name": name}, None, 1)
    if not found:
        raise NotFound(f"expected the name of a schedule of tenant {tenant!r}, got {name!r}, which does not exist")
    return found[0]


def pause(
    tenant: str, name: str, reason: str | None, until: datetime | None, if_revision: int | None
) -> Operation[bool]:
    """Pauses a schedule; whether that changed anything. A missing schedule, or one at another revision, is no change."""
    values = {"tenant": tenant, "name": name, "reason": reason, "until": until, "if_revision": if_revision}
    changed = bool((yield Query(statements(_SQL)["pause"], values)))
    if changed and until is not None:
        yield Query(statements(_SQL)["lift"], {"tenant": tenant, "name": name, "soon_s": LIFTED_S})
    return changed


def resume(tenant: str, name: str, if_revision: int | None) -> Operation[bool]:
    """Resumes a schedule; answers as `pause`."""
    values = {"tenant": tenant, "name": name, "if_revision": if_revision}
    return bool((yield Query(statements(_SQL)["resume"], values)))


def keys_after(
    tenants: Sequence[str], after: tuple[str, str] | None, limit: int
) -> Operation[list[tuple[str, str, UUID]]]:
    """(tenant, name, id) of the schedules of these tenants, in order, after a pair."""
    tenant, name = after or (None, None)
    rows = yield Query(
        statements(_SQL)["keys"], {"tenants": list(tenants), "after_tenant": tenant, "after_name": name, "limit": limit}
    )
    return [(row[0], row[1], row[2]) for row in rows]


def delete(ids: Sequence[UUID], if_revision: int | None = None) -> Operation[int]:
    """Deletes schedules and cancels their unfinished runs (reason deleted), in one transaction of the caller's; how many existed."""
    sql = statements(_SQL)
    gone = yield Query(sql["delete"], {"ids": list(ids), "if_revision": if_revision})
    if gone:
        filters = {"ids": [row[0] for row in gone], "tenants": sorted({row[1] for row in gone})}
        yield Query(sql["cancel_waiting"], filters)
        yield Query(sql["cancel_running"], filters)
    return len(gone)


def days() -> Operation[Days]:
    """The days of `runs`, and the clock."""
    rows = yield Query(statements(_SQL)["days"])
    return Days(*(at.astimezone(UTC) for at in rows[0]))


def make_days(known: Days, first: datetime, last: datetime) -> Operation[None]:
    """Makes sure that `runs` has a day for `first` to `last`, and for all between them and the days there are."""
    if first < known.days_from:
        yield Query(statements(_SQL)["make_days"], {"from_at": first, "through_at": known.days_from})
    if last >= known.days_through:
        through = last + timedelta(microseconds=1)
        yield Query(statements(_SQL)["make_days"], {"from_at": known.days_through, "through_at": through})


def taken(schedule_id: UUID, instants: Sequence[datetime]) -> Operation[dict[datetime, bool]]:
    """Of these occurrences those that have a row; True: a user skipped it."""
    rows = yield Query(statements(_SQL)["taken"], {"id": schedule_id, "instants": list(instants)})
    return {at.astimezone(UTC): bool(skipped) for at, skipped in rows}


def skip(schedule_id: UUID, at: datetime) -> Operation[bool]:
    """Takes the key of an occurrence so that it never fires; False if it has a run already."""
    rows = yield Query(statements(_SQL)["skip"], {"id": schedule_id, "at": at})
    return bool(rows)


def trigger(tenant: str, name: str) -> Operation[tuple[UUID, datetime] | None]:
    """A deferred run that wakes now; its key. None if the schedule is missing, or if its key of this microsecond is taken."""
    rows = yield Query(statements(_SQL)["trigger"], {"tenant": tenant, "name": name})
    return (rows[0][0], rows[0][1].astimezone(UTC)) if rows else None


_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def copy_line(row: ScheduleRow) -> str:
    """The row as a line of COPY's text format."""
    return (
        f"{row.id}\t{_escaped(row.tenant)}\t{_escaped(row.name)}\t{row.spec_id}\t{row.phase}\t{row.jitter_s}\t{row.target_id}\t"
        f"{_escaped(row.expression)}\t{_escaped(row.payload)}\t{_or_null(row.timeout_s)}\t"
        f"{_or_null(row.max_attempts)}\t{_or_null(row.retry_base_s)}\t{_or_null(row.retry_cap_s)}\t{row.overlap}\t{row.misfire}\t"
        f"{row.misfire_threshold_s}\t{_or_null(row.deadline_s)}\t{_escaped(row.labels)}\t{_or_null(row.paused)}\t"
        f"{_or_null(row.starts_at)}\t{_or_null(row.ends_at)}\t{row.catch_up_window_s}\t{row.catch_up_cap}\t"
        f"{_or_null(row.max_runs)}\t{{{','.join(map(str, row.exclude_dates))}}}\t{_array(row.calendars)}\n"
    )


def _array(texts: Sequence[str]) -> str:
    """An array literal, escaped once for itself and once for COPY."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return _escaped("{" + ",".join(f'"{text}"' for text in quoted) + "}") if texts else "{}"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES) if "\\" in text or "\t" in text or "\n" in text or "\r" in text else text


def _or_null(value: object) -> str:
    return "\\N" if value is None else str(value)


def _stored(row: Row) -> StoredSchedule:
    values = list(row)
    for place in (9, 10):
        values[place] = json.loads(values[place])
    for place in (18, 19, 22, 23, 29):
        values[place] = values[place] and values[place].astimezone(UTC)
    for place in (31, 32):
        values[place] = tuple(values[place])
    return StoredSchedule(*values)
