"""A host whose cable is pulled: nothing arrives, nothing is reset, and what was sent comes when it is back."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import namespaces
from tests.support.namespaces import Host, Towards

SILENCE_S = 0.6  # an answer takes a millisecond; a reset, too
BACK_S = 30.0  # TCP tries again after 0.2, 0.4, 0.8, .. s

# On the host: says back what it is sent, in a connection that it opens itself.
ECHO = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as to:
    while data := to.recv(1_000):
        to.sendall(data)
"""


class Line:
    """The machine's end of a connection to the echo on the host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def echo(self, word: bytes, timeout_s: float) -> bytes:
        """What comes back in that time; nothing: b""."""
        self._writer.write(word)
        return await self.heard(len(word), timeout_s)

    async def heard(self, count: int, timeout_s: float) -> bytes:
        """So many bytes, or b"" if they do not come in time; an error if the connection is reset or ends."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reader.readexactly(count)
        except TimeoutError:
            return b""


@asynccontextmanager
async def line(host: Host) -> AsyncIterator[Line]:
    came: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda reader, writer: came.set_result(Line(reader, writer)), host.address, 0)
    port = server.sockets[0].getsockname()[1]
    command = [*host.under, sys.executable, "-c", ECHO, host.address, str(port)]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    try:
        yield await asyncio.wait_for(came, 20)
    finally:
        server.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        (await came)._writer.transport.abort()


async def test_a_pulled_cable_is_silent_and_what_was_sent_comes_after_all() -> None:
    namespaces.needed(namespaces.missing())
    async with Host() as host, line(host) as to:
        assert await to.echo(b"one", BACK_S) == b"one"
        host.pull()
        assert await to.echo(b"two", SILENCE_S) == b""
        host.pull(False)
        assert await to.heard(3, BACK_S) == b"two"


@pytest.mark.parametrize("towards", ["host", "machine"])
async def test_one_direction_is_swallowed_and_the_other_is_not(towards: Towards) -> None:
    namespaces.needed(namespaces.missing_filter())
    async with Host() as host, line(host) as to:
        assert await to.echo(b"one", BACK_S) == b"one"
        host.swallow(towards)
        assert await to.echo(b"two", SILENCE_S) == b""
        assert await _packets_dropped(host, towards) > 0
        host.swallow(towards, on=False)
        assert await to.heard(3, BACK_S) == b"two"


async def _packets_dropped(host: Host, towards: Towards) -> int:
    """By the kernel's count of what the interface took in and no socket of that side saw: all that the rule met."""
    command = (*host.under, "nft") if towards == "host" else ("nft",)
    process = await asyncio.create_subprocess_exec(*command, "list", "table", "inet", host.name, stdout=subprocess.PIPE)
    shown, _ = await process.communicate()
    return int(shown.split(b"packets ")[1].split()[0])
