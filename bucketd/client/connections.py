"""A client's own connections to Postgres: few, opened when first needed, kept while they are sound.

Not psycopg's pool: that opens in background threads, so a wrong DSN would show as a time-out instead of its reason, and a program
of three lines should neither start threads nor have to stop them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from bucketd.errors import StoreUnavailable
from bucketd.store.config import Settings
from bucketd.store.connect import connect, connect_async

SIZE = 4
WAIT_S = 30.0
_BUSY = f"all {SIZE} connections of this client were busy for {WAIT_S:g} s; make fewer calls at once, or another client"


class Connections:
    """At most SIZE autocommit connections; safe among threads. After a fork the child opens its own."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._idle: deque[psycopg.Connection[Any]] = deque()
        self._free = threading.BoundedSemaphore(SIZE)
        self._pid = os.getpid()

    @contextmanager
    def use(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        """A connection for a while, and whether it was used before (then the server may have closed it meanwhile)."""
        if self._pid != os.getpid():
            self._forget_parents()
        free = self._free
        if not free.acquire(timeout=WAIT_S):
            raise StoreUnavailable(_BUSY)
        connection = None
        try:
            connection, reused = self._take()
            yield connection, reused
        finally:
            if connection is not None:
                self._give(connection)
            free.release()

    def close(self) -> None:
        """Closes those that are idle; those in use are closed when they come back."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> tuple[psycopg.Connection[Any], bool]:
        try:
            return self._idle.pop(), True
        except IndexError:
            return connect(self._settings(), application="bucketd client"), False

    def _give(self, connection: psycopg.Connection[Any]) -> None:
        if is_sound(connection):
            self._idle.append(connection)
        else:
            connection.close()

    def _forget_parents(self) -> None:
        # The sockets are shared with the parent: a goodbye from here would end its sessions, so they are only let go of.
        for connection in self._idle:
            _KEPT_OPEN.append(connection)
        self._idle, self._free, self._pid = deque(), threading.BoundedSemaphore(SIZE), os.getpid()


_KEPT_OPEN: list[psycopg.Connection[Any]] = []


class AsyncConnections:
    """`Connections` for one event loop."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._idle: deque[psycopg.AsyncConnection[Any]] = deque()
        self._free = asyncio.BoundedSemaphore(SIZE)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], bool]]:
        """A connection for a while, and whether it was used before. A cancelled user's connection is closed, not reused."""
        try:
            await asyncio.wait_for(self._free.acquire(), WAIT_S)
        except TimeoutError:
            raise StoreUnavailable(_BUSY) from None
        connection = None
        try:
            connection, reused = await self._take()
            yield connection, reused
        except asyncio.CancelledError:
            if connection is not None:
                await connection.close()
            raise
        finally:
            self._free.release()
            if connection is not None:
                await self._give(connection)

    async def close(self) -> None:
        """Closes those that are idle; those in use are closed when they come back."""
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> tuple[psycopg.AsyncConnection[Any], bool]:
        if self._idle:
            return self._idle.pop(), True
        return await connect_async(self._settings(), application="bucketd client"), False

    async def _give(self, connection: psycopg.AsyncConnection[Any]) -> None:
        if is_sound(connection):
            self._idle.append(connection)
        else:
            await connection.close()


def is_sound(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the next user may have it: open, and in no transaction."""
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
