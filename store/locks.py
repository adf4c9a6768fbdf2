"""Advisory locks that also hold behind a pooler: of a transaction that lies idle beside the work, never of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncClientCursor
from psycopg_pool import AsyncConnectionPool

from bucketd.store.statements import statements


@asynccontextmanager
async def alone(pool: AsyncConnectionPool, number: int) -> AsyncIterator[bool]:
    """Whether this process is the only one inside with this number. Takes a connection of its own; if that is lost, so is the lock:
    what is done inside must bear a second one that does the same.
    """
    async with pool.connection() as connection, connection.transaction():
        # By the simple protocol. The extended one leaves a portal open, and that a snapshot: an index that is built meanwhile would
        # wait for the end of this very transaction.
        cursor = AsyncClientCursor(connection)
        row = await (await cursor.execute(statements("locks")["alone"], {"number": number})).fetchone()
        yield bool(row and row[0])
