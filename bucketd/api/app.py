"""The ASGI application: lifespan, routes, and what becomes of errors."""

from __future__ import annotations

import random
import re
from http import HTTPStatus
from typing import Self

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from bucketd.api import reports
from bucketd.api.messages import (
    Disconnected,
    Problem,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    headers_of,
    path_of,
    read_body,
    write,
)
from bucketd.store.clock import wall
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool, postgres_errors
from bucketd.store.errors import BucketdError
from bucketd.store.keyring import KeyRing
from bucketd.store.log import warn
from bucketd.store.migrate import require_current
from bucketd.store.operation import drive_async

CONNECTIONS = 4  # a report is two or three short statements
_ROUTE = re.compile(r"/runs/([^/]+)/(heartbeat|complete)")


class App:
    """Serves reports about long runs. Open it (or let the server's lifespan do so) before the first request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ring = KeyRing(settings.secret_keys.get_secret_value())
        self._pool: AsyncConnectionPool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            raise ValueError(f"expected an http or lifespan scope, got {scope['type']}")

    async def open(self) -> Self:
        """Connects. Raises StoreUnavailable, SchemaError."""
        pool = make_pool(self._settings, application="bucketd api", size=CONNECTIONS)
        with postgres_errors(self._settings):
            try:
                await pool.open(wait=True)
                async with pool.connection() as connection:
                    await require_current(connection)
            except BaseException:
                await pool.close()
                raise
        self._pool = pool
        return self

    async def close(self) -> None:
        """Closes the connections; requests are refused from now on."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except BucketdError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._reply(scope, receive)
        except Disconnected:
            return
        except Problem as problem:
            reply = problem.reply
        except (PoolTimeout, psycopg.OperationalError) as error:
            warn("api_unavailable", error=str(error)[:200])
            detail = "the run's state cannot be read or written just now; send this again"
            reply = Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"retry-after": "1"}).reply
        await write(reply, send)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        path, method = path_of(scope), scope["method"]
        route = _ROUTE.fullmatch(path)
        if route is None:
            raise Problem(HTTPStatus.NOT_FOUND, "expected /runs/{run_id}/heartbeat or /runs/{run_id}/complete")
        if method != "POST":
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, f"expected POST, got {method}", headers={"allow": "POST"})
        headers = headers_of(scope)
        request = Request(method, path, headers, await read_body(headers, receive))
        report = reports.parse(route[2], route[1], request)
        if self._pool is None:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "not open: the server has to speak ASGI's lifespan protocol")
        async with self._pool.connection() as connection:
            operation = reports.answer(report, self._ring, now_s=wall(), draw=random.random())
            return await drive_async(operation, connection)


def create_app() -> App:
    """The application with the settings of the environment. Raises ConfigError."""
    return App(Settings.load())
