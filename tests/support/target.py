"""A recording HTTP target in a thread of its own, so that a busy test loop does not falsify when a call arrived."""

import asyncio
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Reply:
    """What the target answers: `body` as JSON, or `raw` in its place.

    `reset`: cut the connection unanswered. `hang`: no answer until the client goes away.
    """

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    reset: bool = False
    hang: bool = False


@dataclass(frozen=True)
class Request:
    """One request as it arrived. Times are read before the body: `wall_s` since the epoch, `monotonic_s` to compare."""

    wall_s: float
    monotonic_s: float
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any

    @property
    def runs(self) -> list[Any]:
        """The runs it carries: the members of an array body, else the body itself."""
        return self.body if isinstance(self.body, list) else [self.body]


class Target:
    """Records every request; answers `replies` first, each once, then what `script` says."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Where it listens; port 0: any that is free."""
        self._host, self._tls = host, tls
        self.port = port
        self.requests: list[Request] = []
        self.replies: deque[Reply] = deque()
        self.script: Callable[[Request], Reply] = lambda request: Reply()
        self.in_flight = 0
        self.most_in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="recording target")
        self._ready: Future[int] = Future()

    @property
    def url(self) -> str:
        """A URL that is recorded; any other path of the host is, too."""
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def runs(self) -> list[Any]:
        """All runs of all requests so far, in order of arrival."""
        return [run for request in list(self.requests) for run in request.runs]

    async def wait_runs(self, count: int, timeout_s: float) -> list[Any]:
        """Until `count` runs have arrived; all of them."""
        await wait_until(lambda: len(self.runs) >= count, timeout_s, f"{count} runs at the target")
        return self.runs

    def start(self) -> None:
        """Returns when it listens."""
        self._thread.start()
        self.port = self._ready.result(10)

    def stop(self) -> None:
        """Cuts what is open; returns when the thread has ended."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = web.Server(self._handle, handler_cancellation=True)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self.port, ssl_context=self._tls, backlog=2048)
        await site.start()
        self._ready.set_result(runner.addresses[0][1])
        await self._end.wait()
        await runner.cleanup()

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        wall_s, monotonic_s = time.time(), time.monotonic()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            content = await raw.read()
            body = _parsed(content)
            request = Request(wall_s, monotonic_s, raw.method, raw.path_qs, raw.headers.copy(), content, body)
            self.requests.append(request)
            return await self._answer(raw, self.replies.popleft() if self.replies else self.script(request))
        finally:
            self.in_flight -= 1

    async def _answer(self, raw: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        await asyncio.sleep(reply.delay_s)
        if reply.hang:
            await self._end.wait()  # or until the client is gone, which cancels us
        if (reply.reset or reply.hang) and raw.transport is not None:
            raw.transport.abort()
        content = b"" if reply.body is None else json.dumps(reply.body).encode()
        return web.Response(
            status=reply.status,
            headers=reply.headers,
            body=content if reply.raw is None else reply.raw,
            content_type=reply.content_type,
        )


def _parsed(content: bytes) -> Any:
    """The JSON value, or the bytes themselves if they are none."""
    try:
        return json.loads(content)
    except ValueError:
        return content
