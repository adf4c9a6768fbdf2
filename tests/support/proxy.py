"""A TCP proxy before a server, with which a test cuts, refuses, freezes, swallows one direction, or loses exactly one reply."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from tests.support.wire import BlindWire, PostgresWire, RedisWire, Wire

CHUNK = 256 * 1024
Side: TypeAlias = Literal["client", "server"]
_WIRES: dict[str, Callable[[], Wire]] = {"redis": RedisWire, "rediss": BlindWire, "http": BlindWire, "https": BlindWire}


class Proxy:
    """Forwards `host`:`port` to the server that `url` names: a DSN by TCP, a Redis URL, or that of a target.

    An async context manager: it listens inside.
    """

    def __init__(self, url: str, host: str = "127.0.0.1", *, blind: bool = False) -> None:
        """`host`: the address of this machine that it listens at. `blind`: what passes is not the usual protocol (a replica's)."""
        parts = urlsplit(url)
        self._host = host
        if not parts.hostname or not parts.port:
            raise ValueError("expected a URL with host and port; a Unix socket cannot be proxied")
        self._parts = parts
        self._wire = BlindWire if blind else _WIRES.get(parts.scheme, PostgresWire)
        self._swallowed: set[Side] = set()
        self._links: set[_Link] = set()
        self._refusing = False
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.marker: bytes | None = None
        self.lost = asyncio.Event()

    @property
    def url(self) -> str:
        """The server's URL, through this proxy."""
        return urlunsplit(self._parts._replace(netloc=f"{self._login}{self._host}:{self.port}"))

    @property
    def _login(self) -> str:
        login, at, _ = self._parts.netloc.rpartition("@")
        return login + at

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    def cut_now(self) -> None:
        """Reset every open connection on both sides; new ones are accepted."""
        for link in list(self._links):
            link.cut()

    def refuse(self, on: bool = True) -> None:
        """Reset every new connection at once, or stop doing so. Open ones go on (see `cut_now`)."""
        self._refusing = on

    def freeze(self, on: bool = True) -> None:
        """Forward nothing, in silence, as a network that lost its route; or go on, with all that was held."""
        if on:
            self.flowing.clear()
        else:
            self.flowing.set()

    def swallow(self, towards: Side, on: bool = True) -> None:
        """What is sent that way vanishes and nobody is told, as behind a dead route; the other way goes on. When it is over,
        connections that have lost something are reset: what is gone does not come after all.
        """
        if on:
            self._swallowed.add(towards)
            return
        self._swallowed.discard(towards)
        for link in [link for link in self._links if towards in link.lacks]:
            link.cut()

    def swallows(self, towards: Side) -> bool:
        """Whether what is sent that way vanishes."""
        return towards in self._swallowed

    def lead_to(self, url: str) -> None:
        """New connections go to the server of this URL (with the same login) from now on; open ones stay where they are."""
        parts = urlsplit(url)
        self._parts = self._parts._replace(netloc=f"{self._login}{parts.hostname}:{parts.port}")

    def lose_reply_after(self, marker: bytes) -> asyncio.Event:
        """Once: let the next request that contains `marker` reach the server, keep its reply, cut when it is complete.

        So the statement is committed (or the script has run) and the client cannot know. What counts as containing it:
        see wire.py. The event returned is set when it has happened.
        """
        self.marker = marker
        self.lost = asyncio.Event()
        return self.lost

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, limit=CHUNK)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.flowing.set()
        self.cut_now()
        await asyncio.gather(*(link.done.wait() for link in list(self._links)))
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        link = _Link(self, self._wire(), reader, writer)
        self._links.add(link)
        try:
            await link.run(str(self._parts.hostname), int(self._parts.port or 0))
        finally:
            self._links.discard(link)
            link.done.set()


class _Link:
    """One proxied connection: two pumps, and the state of a reply that is being lost."""

    def __init__(self, proxy: Proxy, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._wire = wire
        self._client = (reader, writer)
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._losing = False
        self.lacks: set[Side] = set()  # sides that were not sent something
        self.done = asyncio.Event()

    async def run(self, host: str, port: int) -> None:
        try:
            self._server = await asyncio.open_connection(host, port, limit=CHUNK)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(self._client[0], self._server[1], "server", self._from_client))
                group.create_task(self._pump(self._server[0], self._client[1], "client", self._from_server))
        except* OSError:
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        """Both sides get a reset; the pumps end by themselves."""
        self._client[1].transport.abort()
        if self._server is not None:
            self._server[1].transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        towards: Side,
        pass_on: Callable[[bytes], bool],
    ) -> None:
        while data := await source.read(CHUNK):
            await self._proxy.flowing.wait()
            if self._proxy.swallows(towards) or towards in self.lacks:
                self.lacks.add(towards)
            elif pass_on(data):
                sink.write(data)
                await sink.drain()
        self.cut()  # neither protocol uses half-closed connections

    def _from_client(self, data: bytes) -> bool:
        if self._wire.client(data, None if self._losing else self._proxy.marker):
            self._losing = True
            self._proxy.marker = None
        return True

    def _from_server(self, data: bytes) -> bool:
        complete = self._wire.server(data)
        if self._losing and complete:
            self.cut()
            self._proxy.lost.set()
        return not self._losing
