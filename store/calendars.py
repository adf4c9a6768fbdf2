"""Calendars: named dates of a tenant on which the schedules that name them do not fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple
from uuid import UUID

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "calendars"


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar; `schedules` counts those that name it."""

    tenant: str
    name: str
    dates: tuple[date, ...]
    revision: int
    created_at: datetime
    updated_at: datetime
    schedules: int


class User(NamedTuple):
    """A schedule that names a calendar, and what its spec is made of."""

    id: UUID
    spec_id: int
    phase: int
    exclude_dates: list[date]
    calendars: list[str]
    starts_at: datetime | None
    ends_at: datetime | None
    max_runs: int | None


class Respec(NamedTuple):
    """What a schedule gets when the dates of its calendars change."""

    id: UUID
    spec_id: int
    ends_at: datetime | None


def dates(keys: Sequence[tuple[str, str]]) -> Operation[dict[tuple[str, str], tuple[date, ...]]]:
    """The dates of calendars by (tenant, name), kept as they are until the end of the transaction; missing ones are left out."""
    columns = {"tenants": [tenant for tenant, _ in keys], "names": [name for _, name in keys]}
    rows = yield Query(statements(_SQL)["dates"], columns)
    return {(tenant, name): tuple(found) for tenant, name, found in rows}


def put(tenant: str, name: str, days: Sequence[date]) -> Operation[int | None]:
    """Creates or changes a calendar; its revision, or None if nothing was written."""
    rows = yield Query(statements(_SQL)["put"], {"tenant": tenant, "name": name, "dates": list(days)})
    return int(rows[0][0]) if rows else None


def list_after(
    tenant: str | None, name: str | None, after: tuple[str, str] | None, limit: int
) -> Operation[list[Calendar]]:
    """At most `limit` calendars by (tenant, name) after a pair."""
    after_tenant, after_name = after or (None, None)
    values = {"tenant": tenant, "name": name, "after_tenant": after_tenant, "after_name": after_name, "limit": limit}
    rows = yield Query(statements(_SQL)["list"], values)
    return [
        Calendar(tenant, name, tuple(days), revision, created.astimezone(UTC), updated.astimezone(UTC), count)
        for tenant, name, days, revision, created, updated, count in rows
    ]


def lock(tenant: str, name: str) -> Operation[bool]:
    """Keeps others from reading a calendar for a schedule until the end of the transaction; whether there is one."""
    return bool((yield Query(statements(_SQL)["lock"], {"tenant": tenant, "name": name})))


def delete(tenant: str, name: str) -> Operation[bool]:
    """Deletes a calendar; whether there was one."""
    return bool((yield Query(statements(_SQL)["delete"], {"tenant": tenant, "name": name})))


def users(tenant: str, name: str, after: UUID | None, limit: int) -> Operation[list[User]]:
    """The next schedules by id that name a calendar; locked."""
    values = {"tenant": tenant, "name": name, "after": after, "limit": limit}
    return [User(*row) for row in (yield Query(statements(_SQL)["users"], values))]


def respec(changed: Sequence[Respec]) -> Operation[int]:
    """Gives schedules new specs and ends; how many changed."""
    if not changed:
        return 0
    ids, spec_ids, ends_at = (list(column) for column in zip(*changed, strict=True))
    return len((yield Query(statements(_SQL)["respec"], {"ids": ids, "specs": spec_ids, "ends_at": ends_at})))
