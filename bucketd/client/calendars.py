"""`client.calendars`: named dates of a tenant on which the schedules that name them do not fire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from math import ceil
from typing import Any
from uuid import UUID

import psycopg

from bucketd.client import checks, cursors
from bucketd.client.exclusions import Excluded
from bucketd.client.inputs import counts_from, end_of
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.errors import Conflict, NotFound
from bucketd.store import calendars, schedules, specs
from bucketd.store.calendars import Calendar, Respec, User
from bucketd.store.operation import Operation
from bucketd.store.specs import SpecRow
from bucketd.timing import AtSpec, Spec, count_between, load_rule

CHUNK = 5_000
MOST_DATES = 5_000


class Calendars:
    """Calendars by (tenant, name)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(
        self,
        name: str,
        dates: Iterable[date],
        *,
        tenant: str = "default",
        connection: psycopg.Connection[Any] | None = None,
    ) -> Calendar:
        """Creates the calendar, or gives it exactly these dates, at most 5,000; a put that changes nothing writes nothing.

        For the schedules that name it that is a change of timing: it holds from now on, in one transaction with this. One with
        max_runs keeps the number of occurrences that it has left. Raises InvalidInput.
        """
        return self._session.write(lambda: _put(name, dates, tenant), connection, "nudge", patient=True)

    def get(self, name: str, *, tenant: str = "default") -> Calendar:
        """The calendar of this name. Raises NotFound."""
        return self._session.read(lambda: _get(name, tenant))

    def list(self, *, tenant: str | None = None, limit: int = 100, cursor: str | None = None) -> Page[Calendar]:
        """A page of calendars by tenant and name; `limit` 1 to 1,000. Raises InvalidInput: a cursor that is none."""
        return self._session.read(lambda: _list(tenant, limit, cursor))

    def delete(self, name: str, *, tenant: str = "default", connection: psycopg.Connection[Any] | None = None) -> None:
        """Deletes a calendar. Raises NotFound, and Conflict while schedules name it."""
        self._session.write(lambda: _delete(name, tenant), connection)


class AsyncCalendars:
    """Calendars by (tenant, name)."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def put(
        self,
        name: str,
        dates: Iterable[date],
        *,
        tenant: str = "default",
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Calendar:
        """Creates the calendar, or gives it exactly these dates, at most 5,000; a put that changes nothing writes nothing.

        For the schedules that name it that is a change of timing: it holds from now on, in one transaction with this. One with
        max_runs keeps the number of occurrences that it has left. Raises InvalidInput.
        """
        return await self._session.write(lambda: _put(name, dates, tenant), connection, "nudge", patient=True)

    async def get(self, name: str, *, tenant: str = "default") -> Calendar:
        """The calendar of this name. Raises NotFound."""
        return await self._session.read(lambda: _get(name, tenant))

    async def list(self, *, tenant: str | None = None, limit: int = 100, cursor: str | None = None) -> Page[Calendar]:
        """A page of calendars by tenant and name; `limit` 1 to 1,000. Raises InvalidInput: a cursor that is none."""
        return await self._session.read(lambda: _list(tenant, limit, cursor))

    async def delete(
        self, name: str, *, tenant: str = "default", connection: psycopg.AsyncConnection[Any] | None = None
    ) -> None:
        """Deletes a calendar. Raises NotFound, and Conflict while schedules name it."""
        await self._session.write(lambda: _delete(name, tenant), connection)


def _put(name: str, dates: Iterable[date], tenant: str) -> Operation[Calendar]:
    days = checks.dates(dates, "dates", most=MOST_DATES)
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    if (yield from calendars.put(*key, days)) is not None:
        after: UUID | None = None
        while True:
            found = yield from calendars.users(*key, after, CHUNK)
            yield from _respec(key[0], found)
            if len(found) < CHUNK:
                break
            after = found[-1].id
    return (yield from _get(name, tenant))


def _respec(tenant: str, users: list[User]) -> Operation[None]:
    """New specs for schedules one of whose calendars has changed: the same rule without other days."""
    excluded = Excluded((yield from calendars.dates(sorted({(tenant, n) for user in users for n in user.calendars}))))
    rules = yield from specs.rules({user.spec_id for user in users})
    old = {spec_id: load_rule(rule) for spec_id, rule in rules.items()}
    made: dict[tuple[int, tuple[int, ...]], Spec] = {}  # users are many, what they share is little
    fresh: dict[UUID, Spec] = {}
    for user in users:
        spec = old[user.spec_id]
        if isinstance(spec, AtSpec):  # only raw SQL gives a one-shot a calendar
            continue
        key = user.spec_id, excluded.days(tenant, user.exclude_dates, user.calendars)
        fresh[user.id] = made[key] = made.get(key) or replace(spec, exclude=key[1])
    rows = {spec: SpecRow(spec.rule(), spec.kind, getattr(spec, "every_s", None)) for spec in set(made.values())}
    spec_ids = yield from specs.intern(rows.values())
    now_s = yield from schedules.now_s()
    changed = [
        Respec(user.id, spec_ids[rows[fresh[user.id]].rule], _end(user, old[user.spec_id], fresh[user.id], now_s))
        for user in users
        if user.id in fresh
    ]
    yield from calendars.respec(changed)


def _end(user: User, old: Spec, fresh: Spec, now_s: float) -> datetime | None:
    """The end that leaves a schedule with max_runs as many occurrences as it had left; other ends stay."""
    if user.max_runs is None or user.ends_at is None:
        return user.ends_at
    from_s = counts_from(now_s, user.starts_at)
    left = count_between(old, from_s, ceil(user.ends_at.timestamp()), user.phase)
    return end_of(fresh, from_s, left, user.phase) if left else user.ends_at


def _get(name: str, tenant: str) -> Operation[Calendar]:
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    found = yield from calendars.list_after(*key, None, 1)
    if not found:
        raise NotFound(f"expected the name of a calendar of tenant {tenant!r}, got {name!r}, which does not exist")
    return found[0]


def _list(tenant: str | None, limit: int, cursor: str | None) -> Operation[Page[Calendar]]:
    key = cursors.decode("calendars", cursor, (str, str))
    after = (str(key[0]), str(key[1])) if key else None
    wanted = None if tenant is None else checks.name(tenant, "tenant")
    found = yield from calendars.list_after(wanted, None, after, checks.limit(limit) + 1)
    last = found[limit - 1] if len(found) > limit else None
    return Page(tuple(found[:limit]), cursors.encode("calendars", last.tenant, last.name) if last else None)


def _delete(name: str, tenant: str) -> Operation[None]:
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    # Locked first: whoever puts a schedule that names it waits, or has been counted.
    if not (yield from calendars.lock(*key)):
        yield from _get(name, tenant)  # raises
    found = yield from _get(name, tenant)
    if found.schedules:
        raise Conflict(f"calendar {name!r} is named by {found.schedules:,} schedules; take it out of those first")
    yield from calendars.delete(*key)
