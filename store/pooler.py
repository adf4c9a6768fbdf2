"""Connections that also work behind a pooler in transaction mode (pgbouncer), where nothing of a session lasts.

Directly, time-outs and plan settings are options of the start. A pooler refuses or drops these, and a SET would stay on a server
connection that others get next. There they go in front of each statement, local to its transaction: one round trip as before, by a
pipeline; and nothing is prepared. Nobody has to say that there is a pooler: the backend that answers is not the one that greeted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from select import POLLIN, poll
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.pq import ConnStatus, TransactionStatus

_GREETING = b"select pg_backend_pid(), pg_is_in_recovery()"
_REFUSALS = ("unsupported startup parameter", "command-line options")  # pgbouncer's and RDS Proxy's words


def as_options(session: Mapping[str, str]) -> str:
    """Settings as libpq's `options`."""
    return " ".join(f"-c {name}={value}" for name, value in session.items())


def as_prefix(session: Mapping[str, str]) -> bytes:
    """The statement that makes the same settings for the rest of a transaction."""
    calls = [f"set_config({_quoted(name)}, {_quoted(value)}, true)" for name, value in session.items()]
    return f"select {', '.join(calls)}".encode()


def _quoted(text: str) -> str:
    return str(sql.Literal(text).as_string(None))


def _refuses_options(error: psycopg.OperationalError) -> bool:
    return any(refusal in str(error) for refusal in _REFUSALS)


def _without_options(conninfo: str, session: Mapping[str, str]) -> str:
    """The same without our options; the user's own stay, and are refused in his face."""
    given = conninfo_to_dict(conninfo)
    given["options"] = str(given.get("options") or "").removesuffix(as_options(session)).strip() or None
    return make_conninfo(**{key: str(value) for key, value in given.items() if value is not None})


class Connection(psycopg.Connection[Any]):
    """An autocommit connection whose session settings hold, pooler or not. `standby`: it is one of a standby's."""

    standby = False
    prefix: bytes | None = None  # behind a pooler: what goes in front of each transaction

    @classmethod
    def connect(cls, conninfo: str = "", *, session: Mapping[str, str], **kwargs: Any) -> Self:  # type: ignore[override]
        """`conninfo` ends its options with those of `session`."""
        try:
            made = super().connect(conninfo, autocommit=True, **kwargs)
        except psycopg.OperationalError as error:
            if not _refuses_options(error):
                raise
            made = super().connect(_without_options(conninfo, session), autocommit=True, **kwargs)
        made.cursor_factory = Cursor
        try:
            row = psycopg.Cursor(made).execute(_GREETING, prepare=False).fetchone()
            _note(made, session, row)
            if made.prefix and _shows_other_zone(made):
                psycopg.Cursor(made).execute("set timezone = 'UTC'")
        except BaseException:
            made.close()
            raise
        return made

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        outermost = _is_idle(self)
        with super().transaction(savepoint_name, force_rollback) as block:
            if self.prefix and outermost:
                psycopg.Cursor(self).execute(self.prefix)
            yield block


class Cursor(psycopg.Cursor[Any]):
    """Executes under the session's settings."""

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        connection: Any = self.connection
        try:
            if connection.prefix is None or not _is_idle(connection):
                return super().execute(query, params, prepare=prepare, binary=binary)
            with connection.pipeline():
                psycopg.Cursor(connection).execute(connection.prefix)
                super().execute(query, params, binary=binary)
        except ReadOnlySqlTransaction:
            connection.close()  # see AsyncCursor
            raise
        return self


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """`Connection` for an event loop."""

    standby = False
    prefix: bytes | None = None

    @classmethod
    async def connect(cls, conninfo: str = "", *, session: Mapping[str, str], **kwargs: Any) -> Self:  # type: ignore[override]
        try:
            made = await super().connect(conninfo, **{"autocommit": True, **kwargs})
        except psycopg.OperationalError as error:
            if not _refuses_options(error):
                raise
            made = await super().connect(_without_options(conninfo, session), **{"autocommit": True, **kwargs})
        made.cursor_factory = AsyncCursor
        try:
            row = await (await psycopg.AsyncCursor(made).execute(_GREETING, prepare=False)).fetchone()
            _note(made, session, row)
            if made.prefix and _shows_other_zone(made):
                await psycopg.AsyncCursor(made).execute("set timezone = 'UTC'")
        except BaseException:
            await made.close()
            raise
        return made

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        outermost = _is_idle(self)
        async with super().transaction(savepoint_name, force_rollback) as block:
            if self.prefix and outermost:
                await psycopg.AsyncCursor(self).execute(self.prefix)
            yield block


class AsyncCursor(psycopg.AsyncCursor[Any]):
    """`Cursor` for an event loop."""

    async def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        connection: Any = self.connection
        try:
            if connection.prefix is None or not _is_idle(connection):
                return await super().execute(query, params, prepare=prepare, binary=binary)
            # Without a BEGIN: what lies between two Syncs is one transaction, committed by the second, and a failure leaves none open.
            async with connection.pipeline():
                await psycopg.AsyncCursor(connection).execute(connection.prefix)
                await super().execute(query, params, binary=binary)
        except ReadOnlySqlTransaction:
            # A primary no more. Given back alive, the pool would hand out this connection for ever; a new one looks for the primary.
            await connection.close()
            raise
        return self


def _note(made: Connection | AsyncConnection, session: Mapping[str, str], greeting: tuple[Any, ...] | None) -> None:
    assert greeting is not None
    backend, made.standby = greeting
    if backend != made.info.backend_pid:
        made.prefix = as_prefix(session)
        made.prepare_threshold = None


def _shows_other_zone(made: Connection | AsyncConnection) -> bool:
    """psycopg converts what it reads to the session's zone. This one setting poolers do keep, for each of their clients."""
    return made.info.parameter_status("TimeZone") not in ("UTC", "Etc/UTC")


def _is_idle(connection: psycopg.BaseConnection[Any]) -> bool:
    return connection.pgconn.transaction_status == TransactionStatus.IDLE


def check_alive(connection: psycopg.BaseConnection[Any]) -> None:
    """Raises OperationalError if the server has ended this idle connection. No round trip: what it said lies in the socket."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    while waiting.poll(0):  # a notice, or the last words and then the end
        connection.pgconn.consume_input()
        if connection.pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")
