"""Where an operation runs: on the client's own connections, a transaction each, or on the caller's connection, in its transaction.

On the caller's connection nothing is committed or rolled back, and nothing is published: only the caller knows when it commits.
The cluster's poll (once a second) finds the write then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from bucketd.client import checks
from bucketd.client.border import CLASHES, mapped
from bucketd.client.connections import AsyncConnections, Connections
from bucketd.client.publisher import AsyncPublisher, Publisher, Signal
from bucketd.errors import InvalidInput
from bucketd.store import audit
from bucketd.store.config import Settings, without_secret
from bucketd.store.keyring import KeyRing
from bucketd.store.operation import Operation, Query, drive, drive_async

T = TypeVar("T")
_TRIES = 4
ACTOR = "BUCKETD_ACTOR"
SECRET_KEYS = "BUCKETD_SECRET_KEYS"
# Bulk statements are long by nature, and wait for each other; the default time-outs are made for the data path.
PATIENCE = Query("select set_config('statement_timeout', '120s', true), set_config('lock_timeout', '60s', true)")


class Where:
    """Settings, read when first needed: a client that only ever gets connections needs none."""

    def __init__(
        self,
        dsn: str | None,
        redis_url: str | None,
        redis_prefix: str | None,
        settings: Settings | None,
        actor: str | None,
    ) -> None:
        self._given: dict[str, Any] = {"dsn": dsn, "redis_url": redis_url, "redis_prefix": redis_prefix}
        self._settings = settings
        self._actor = None if actor is None else checks.name(actor, "actor")

    def signed(self, make: Callable[[], Operation[T]], *, own: bool) -> Callable[[], Operation[T]]:
        """The operation with the name of who runs it, for the audit log; without one the database user stands there.

        own: on the client's own connection, which needs the settings anyway.
        """
        actor = self._actor or (self.settings().actor if own or self._settings else os.environ.get(ACTOR, ""))
        if not actor:
            return make

        def whole() -> Operation[T]:
            yield from audit.act_as(actor)
            return (yield from make())

        return whole

    def settings(self) -> Settings:
        """Raises ConfigError: malformed settings."""
        if self._settings is None:
            # A DSN in hand is all there is to say; without one the environment speaks.
            self._settings = Settings.load({} if self._given["dsn"] else None, **self._given)
        return self._settings

    def keyring(self) -> KeyRing:
        """What seals targets' secrets; also for a client that was given a DSN. Raises ConfigError: a malformed key."""
        return KeyRing(self.settings().secret_keys.get_secret_value() or os.environ.get(SECRET_KEYS, ""))

    def shown(self) -> str:
        return without_secret(self.settings().dsn.get_secret_value()) or "the given connection"


class Session:
    """Runs operations for `Client`."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._connections = Connections(where.settings)
        self._publisher = Publisher(where.settings)
        self._borrowed: psycopg.Connection[Any] | None = None

    def on(self, connection: psycopg.Connection[Any]) -> Session:
        """The same session, bound to the caller's connection."""
        bound = Session.__new__(Session)
        bound._where, bound._connections, bound._publisher = self._where, self._connections, self._publisher
        bound._borrowed = checked(connection, psycopg.Connection)
        return bound

    def keyring(self) -> KeyRing:
        """What seals targets' secrets. Raises ConfigError: a malformed key."""
        return self._where.keyring()

    def dead_after_s(self) -> float:
        """Seconds without a heartbeat after which a runner counts as dead."""
        return self._where.settings().runner_dead_after_s

    def read(self, make: Callable[[], Operation[T]]) -> T:
        """Runs an operation that writes nothing."""
        return self._run(make, None, write=False)

    def write(
        self,
        make: Callable[[], Operation[T]],
        connection: psycopg.Connection[Any] | None = None,
        *signals: Signal,
        patient: bool = False,
        dry_run: bool = False,
        undo: bool = False,
    ) -> T:
        """Runs an operation as one transaction (or inside the caller's), then tells the cluster.

        patient: it may take long. undo: it may fail after it wrote; in the caller's transaction that takes a savepoint.
        """
        result = self._run(make, connection, write=True, patient=patient, dry_run=dry_run, undo=undo)
        if connection is None and self._borrowed is None and not dry_run:
            self._publisher.publish(signals)
        return result

    def close(self) -> None:
        if self._borrowed is None:
            self._connections.close()
            self._publisher.close()

    def _run(
        self,
        make: Callable[[], Operation[T]],
        connection: psycopg.Connection[Any] | None,
        *,
        write: bool,
        patient: bool = False,
        dry_run: bool = False,
        undo: bool = False,
    ) -> T:
        borrowed = self._borrowed if connection is None else checked(connection, psycopg.Connection)
        make = self._where.signed(make, own=borrowed is None) if write else make
        try:
            if borrowed is not None:
                return _on_borrowed(make, borrowed, write=write, dry_run=dry_run, undo=undo)
            return self._on_own(make, write=write, patient=patient, dry_run=dry_run)
        except psycopg.Error as error:
            raise mapped(error, self._where.shown() if borrowed is None else "the given connection") from error

    def _on_own(self, make: Callable[[], Operation[T]], *, write: bool, patient: bool, dry_run: bool) -> T:
        for left in reversed(range(_TRIES)):
            finished = False
            with self._connections.use() as (connection, reused):
                try:
                    if not write:
                        return drive(make(), connection)
                    with connection.transaction(force_rollback=dry_run):
                        if patient:
                            connection.execute(PATIENCE.sql.encode())
                        result = drive(make(), connection)
                        finished = True
                    return result
                except CLASHES:
                    if not left:
                        raise
                except psycopg.OperationalError:
                    # The server closed an idle connection. Once COMMIT may have arrived nothing is repeated.
                    if finished or not left or not (reused and connection.closed):
                        raise
        raise AssertionError("unreachable: the last try returns or raises")


class AsyncSession:
    """Runs operations for `AsyncClient`."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._connections = AsyncConnections(where.settings)
        self._publisher = AsyncPublisher(where.settings)
        self._borrowed: psycopg.AsyncConnection[Any] | None = None

    def on(self, connection: psycopg.AsyncConnection[Any]) -> AsyncSession:
        """The same session, bound to the caller's connection."""
        bound = AsyncSession.__new__(AsyncSession)
        bound._where, bound._connections, bound._publisher = self._where, self._connections, self._publisher
        bound._borrowed = checked(connection, psycopg.AsyncConnection)
        return bound

    def keyring(self) -> KeyRing:
        """What seals targets' secrets. Raises ConfigError: a malformed key."""
        return self._where.keyring()

    def dead_after_s(self) -> float:
        """Seconds without a heartbeat after which a runner counts as dead."""
        return self._where.settings().runner_dead_after_s

    async def read(self, make: Callable[[], Operation[T]]) -> T:
        """Runs an operation that writes nothing."""
        return await self._run(make, None, write=False)

    async def write(
        self,
        make: Callable[[], Operation[T]],
        connection: psycopg.AsyncConnection[Any] | None = None,
        *signals: Signal,
        patient: bool = False,
        dry_run: bool = False,
        undo: bool = False,
    ) -> T:
        """Runs an operation as one transaction (or inside the caller's), then tells the cluster.

        patient: it may take long. undo: it may fail after it wrote; in the caller's transaction that takes a savepoint.
        """
        result = await self._run(make, connection, write=True, patient=patient, dry_run=dry_run, undo=undo)
        if connection is None and self._borrowed is None and not dry_run:
            await self._publisher.publish(signals)
        return result

    async def close(self) -> None:
        if self._borrowed is None:
            await self._connections.close()
            await self._publisher.close()

    async def _run(
        self,
        make: Callable[[], Operation[T]],
        connection: psycopg.AsyncConnection[Any] | None,
        *,
        write: bool,
        patient: bool = False,
        dry_run: bool = False,
        undo: bool = False,
    ) -> T:
        borrowed = self._borrowed if connection is None else checked(connection, psycopg.AsyncConnection)
        make = self._where.signed(make, own=borrowed is None) if write else make
        try:
            if borrowed is not None:
                return await _on_borrowed_async(make, borrowed, write=write, dry_run=dry_run, undo=undo)
            return await self._on_own(make, write=write, patient=patient, dry_run=dry_run)
        except psycopg.Error as error:
            raise mapped(error, self._where.shown() if borrowed is None else "the given connection") from error

    async def _on_own(self, make: Callable[[], Operation[T]], *, write: bool, patient: bool, dry_run: bool) -> T:
        for left in reversed(range(_TRIES)):
            finished = False
            async with self._connections.use() as (connection, reused):
                try:
                    if not write:
                        return await drive_async(make(), connection)
                    async with connection.transaction(force_rollback=dry_run):
                        if patient:
                            await connection.execute(PATIENCE.sql.encode())
                        result = await drive_async(make(), connection)
                        finished = True
                    return result
                except CLASHES:
                    if not left:
                        raise
                except psycopg.OperationalError:
                    if finished or not left or not (reused and connection.closed):
                        raise
        raise AssertionError("unreachable: the last try returns or raises")


def _on_borrowed(
    make: Callable[[], Operation[T]], connection: psycopg.Connection[Any], *, write: bool, dry_run: bool, undo: bool
) -> T:
    # In autocommit and outside a transaction several statements would commit one by one; elsewhere the transaction is the caller's.
    if not (dry_run or undo or (write and _commits_itself(connection))):
        return drive(make(), connection)
    if _is_idle(connection) and not connection.autocommit:
        connection.execute(
            "select 1"
        )  # begins the caller's transaction; a block below it is a savepoint and commits nothing
    with connection.transaction(force_rollback=dry_run):
        return drive(make(), connection)


async def _on_borrowed_async(
    make: Callable[[], Operation[T]],
    connection: psycopg.AsyncConnection[Any],
    *,
    write: bool,
    dry_run: bool,
    undo: bool,
) -> T:
    if not (dry_run or undo or (write and _commits_itself(connection))):
        return await drive_async(make(), connection)
    if _is_idle(connection) and not connection.autocommit:
        await connection.execute("select 1")
    async with connection.transaction(force_rollback=dry_run):
        return await drive_async(make(), connection)


def _commits_itself(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.autocommit and _is_idle(connection)


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


C = TypeVar("C")


def checked(connection: object, kind: type[C]) -> C:
    """Raises InvalidInput for anything but a psycopg 3 connection of the right kind."""
    if not isinstance(connection, kind):
        raise InvalidInput(
            f"expected a psycopg.{kind.__name__} (psycopg 3), got {type(connection).__module__}.{type(connection).__name__};"
            " a wrapper (SQLAlchemy, Django, a pool's context) has the real one inside",
            field="connection",
        )
    return connection
