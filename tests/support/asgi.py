"""A client that drives an ASGI application directly, as a server would."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    """One response as it was sent."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body's JSON value."""
        return json.loads(self.raw)


class AsgiClient:
    """Requests to one application. `mounted`: the path below which it is told to be."""

    def __init__(self, app: Any, mounted: str = "") -> None:
        self._app = app
        self._mounted = mounted

    async def post(self, path: str, body: object = b"", headers: Mapping[str, str] | None = None) -> Response:
        """A POST; `body` that is no bytes goes as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, [content], headers)

    async def request(
        self, method: str, path: str, chunks: Iterable[bytes] = (b"",), headers: Mapping[str, str] | None = None
    ) -> Response:
        """A request whose body arrives in these chunks."""
        sent: list[dict[str, Any]] = []
        parts = list(chunks)
        incoming: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": n < len(parts)} for n, part in enumerate(parts, 1)
        ]
        await self._run(method, path, headers or {}, incoming, sent)
        start, *bodies = sent
        return Response(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message["body"] for message in bodies),
        )

    async def leave(self, method: str, path: str) -> list[dict[str, Any]]:
        """A request whose client goes away in the middle of the body; what was sent to it."""
        sent: list[dict[str, Any]] = []
        incoming: list[dict[str, Any]] = [
            {"type": "http.request", "body": b"{", "more_body": True},
            {"type": "http.disconnect"},
        ]
        await self._run(method, path, {}, incoming, sent)
        return sent

    async def _run(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        incoming: list[dict[str, Any]],
        sent: list[dict[str, Any]],
    ) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": self._mounted + path,
            "root_path": self._mounted,
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }

        async def receive() -> dict[str, Any]:
            return incoming.pop(0)  # to ask for more than there is raises IndexError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    """Starts the application and yields its answer to that; shuts it down if it started."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    task = asyncio.create_task(app(scope, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    answer = await asyncio.wait_for(from_app.get(), 20)
    try:
        yield answer
    finally:
        if answer["type"] == "lifespan.startup.complete":
            await to_app.put({"type": "lifespan.shutdown"})
            assert (await asyncio.wait_for(from_app.get(), 20))["type"] == "lifespan.shutdown.complete"
        await asyncio.wait_for(task, 20)
