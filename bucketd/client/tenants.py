"""`client.tenants`: how much of the cluster a tenant may have at once."""

from __future__ import annotations

from typing import Any

import psycopg

from bucketd.client import checks, cursors
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store import tenants
from bucketd.store.operation import Operation
from bucketd.store.tenants import Tenant


class Tenants:
    """Tenants with a cap. All others need no entry here: a tenant is whoever has schedules."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, name: str, *, max_running: int, connection: psycopg.Connection[Any] | None = None) -> Tenant:
        """Caps how many runs of the tenant go on at once, in the whole cluster: 1 to 1,000,000. What is over waits. Idempotent.

        Runs that go on already are let be. `created` and `changed` of the result say what was done. Raises InvalidInput.
        """
        return self._session.write(lambda: _put(name, max_running), connection)

    def get(self, name: str) -> Tenant:
        """The tenant of this name. Raises NotFound: it has no cap."""
        return self._session.read(lambda: tenants.get(checks.name(name, "name")))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Tenant]:
        """A page of tenants with a cap by name; `limit` 1 to 1,000. Raises InvalidInput: a cursor that is none."""
        return self._session.read(lambda: _list(limit, cursor))

    def delete(self, name: str, *, connection: psycopg.Connection[Any] | None = None) -> None:
        """Takes the tenant's cap away; its schedules and runs stay. Raises NotFound: it has none."""
        self._session.write(lambda: tenants.delete(checks.name(name, "name")), connection)


class AsyncTenants:
    """Tenants with a cap. All others need no entry here: a tenant is whoever has schedules."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def put(
        self, name: str, *, max_running: int, connection: psycopg.AsyncConnection[Any] | None = None
    ) -> Tenant:
        """Caps how many runs of the tenant go on at once, in the whole cluster: 1 to 1,000,000. What is over waits. Idempotent.

        Runs that go on already are let be. `created` and `changed` of the result say what was done. Raises InvalidInput.
        """
        return await self._session.write(lambda: _put(name, max_running), connection)

    async def get(self, name: str) -> Tenant:
        """The tenant of this name. Raises NotFound: it has no cap."""
        return await self._session.read(lambda: tenants.get(checks.name(name, "name")))

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Tenant]:
        """A page of tenants with a cap by name; `limit` 1 to 1,000. Raises InvalidInput: a cursor that is none."""
        return await self._session.read(lambda: _list(limit, cursor))

    async def delete(self, name: str, *, connection: psycopg.AsyncConnection[Any] | None = None) -> None:
        """Takes the tenant's cap away; its schedules and runs stay. Raises NotFound: it has none."""
        await self._session.write(lambda: tenants.delete(checks.name(name, "name")), connection)


def _put(name: str, max_running: int) -> Operation[Tenant]:
    return (yield from tenants.put(checks.name(name, "name"), checks.max_running(max_running)))


def _list(limit: int, cursor: str | None) -> Operation[Page[Tenant]]:
    after = cursors.decode("tenants", cursor, (str,))
    found = yield from tenants.list_after(str(after[0]) if after else None, checks.limit(limit) + 1)
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.encode("tenants", found[limit - 1].name) if more else None)
