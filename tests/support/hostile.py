"""A target that misbehaves as scripted, on bare sockets, in a thread of its own: no HTTP library mends what it sends.

A path has a script for each attempt: attempt n of a run gets the n-th one, and the last stands for all that follow. A request without
an attempt (of many runs) takes the next one each time.
"""

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST and drops what was not sent
T = TypeVar("T")


class Then(Enum):
    """What comes after the bytes of a script."""

    KEEP = auto()  # the next request, on the same connection
    CLOSE = auto()
    HALF_CLOSE = auto()  # no byte more, but it goes on listening until the client closes
    RESET = auto()
    HANG = auto()  # nothing at all until the client closes


@dataclass
class Hit:
    """A request as it arrived; monotonic seconds. `ended_s`: when the script was over, at the latest by the client's hanging up."""

    path: str
    headers: Mapping[str, str]
    body: Any
    arrived_s: float
    ended_s: float | None = None

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def attempt(self) -> int | None:
        """None: it carries many runs, each with its own."""
        text = self.headers.get("bucketd-attempt")
        return None if text is None else int(text)


@dataclass(frozen=True)
class Script:
    """Sends `send`, or what that makes of the request; then `endless` over and over, each `every_s`, if there is any; then `then`."""

    send: bytes | Callable[[Hit], bytes] = b""
    then: Then = Then.CLOSE
    endless: bytes = b""
    every_s: float = 0.0


def http(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A whole, correct answer."""
    bodiless = status < 200 or status in (204, 304)
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    if not bodiless:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def well(status: int, body: bytes = b"", **headers: str) -> Script:
    """A correct answer on a connection that lives on. Names of headers with _ for -."""
    return Script(http(status, body, {name.replace("_", "-"): value for name, value in headers.items()}), Then.KEEP)


def per_run(status: int, entry: Callable[[dict[str, Any]], Any]) -> Script:
    """An answer with a status for each run of the request: `entry` of a run's envelope, without its run_id."""

    def answer(hit: Hit) -> bytes:
        entries = [{"run_id": run["run_id"], **entry(run)} for run in hit.body]
        return http(status, json.dumps({"runs": entries}).encode(), {"Content-Type": "application/json"})

    return Script(answer, Then.KEEP)


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port that answers no SYN: it listens, nobody accepts, and its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        port = listening.getsockname()[1]
        waiting = []
        try:
            for _ in range(4):  # more than a backlog of none holds, whatever the kernel rounds it to
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for one in waiting:
                one.close()


@dataclass
class _Path:
    scripts: tuple[Script, ...]
    asked: Counter[str] = field(default_factory=Counter)


class Hostile:
    """Listens from `start` to `stop`; give each path its scripts before it is called."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.port = 0
        self._paths: dict[str, _Path] = {}
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hostile target")
        self._ready: Future[None] = Future()

    def script(self, path: str, *scripts: Script) -> str:
        """What happens at this path; its URL."""
        self._paths[path] = _Path(scripts)
        return f"http://127.0.0.1:{self.port}/{path}"

    def at(self, path: str) -> list[Hit]:
        """The requests of a path, in order of arrival."""
        return [hit for hit in list(self.hits) if hit.path == path]

    @property
    def under_way(self) -> list[Hit]:
        """Requests whose script is not over: the client has not hung up."""
        return [hit for hit in list(self.hits) if hit.ended_s is None]

    def start(self) -> None:
        """Returns when it listens."""
        self._thread.start()
        self._ready.result(10)
        self.port = self.listen()

    def listen(self, tls: ssl.SSLContext | None = None) -> int:
        """One more port with the same paths."""
        return self._there(self._listen(tls))

    def hang_up(self) -> None:
        """Closes every connection that is open; returns when they are gone."""
        self._there(self._hang_up())

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._end = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._ready.set_result(None)
        await self._end.wait()
        for server in self._servers:
            server.close()
        await self._hang_up()

    async def _listen(self, tls: ssl.SSLContext | None) -> int:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=tls, backlog=1024)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _hang_up(self) -> None:
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while (hit := await _read(reader)) is not None:
                self.hits.append(hit)
                then = await self._play(hit, reader, writer)
                hit.ended_s = time.monotonic()
                if then is not Then.KEEP:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has hung up: its right
        finally:
            writer.close()
            del self._open[task]

    async def _play(self, hit: Hit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Then:
        script = self._next_script(hit)
        writer.write(script.send if isinstance(script.send, bytes) else script.send(hit))
        try:
            await writer.drain()
            if script.endless:
                await _without_end(script, reader, writer)
            if script.then is Then.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()
            elif script.then is Then.HALF_CLOSE:
                writer.write_eof()
            if script.then in (Then.HANG, Then.HALF_CLOSE):
                await reader.read()
        finally:
            hit.ended_s = time.monotonic()
        return script.then

    def _next_script(self, hit: Hit) -> Script:
        path = self._paths[hit.path.partition("?")[0]]
        path.asked[""] += 1
        number = hit.attempt or path.asked[""]
        return path.scripts[min(number, len(path.scripts)) - 1]


async def _read(reader: asyncio.StreamReader) -> Hit | None:
    """The next request of a connection; None: there is none more."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    arrived_s = time.monotonic()
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Hit(first.split()[1].lstrip("/"), headers, json.loads(body), arrived_s)


async def _without_end(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Returns when the client has hung up."""
    gone = asyncio.ensure_future(reader.read())
    try:
        while not gone.done():
            writer.write(script.endless)
            await writer.drain()
            await asyncio.wait([gone], timeout=script.every_s)
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await gone
