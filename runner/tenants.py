"""The caps of tenants, read again every other second: a cap that is set now holds soon."""

from __future__ import annotations

import asyncio

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.outage import Outage
from bucketd.store import limits as statement

PERIOD_S = 2.0


class TenantCaps:
    """The caps of tenants, as they stood a moment ago."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._outage = Outage("tenant_caps")
        self.caps: dict[str, int] = {}

    async def run_once(self) -> None:
        """Reads them. Raises psycopg.Error."""
        async with self._pool.connection() as connection:
            self.caps = await statement.tenant_caps(connection)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.run_once()
                self._outage.recovered()
            except psycopg.Error as error:
                await asyncio.sleep(self._outage.failed(error))
