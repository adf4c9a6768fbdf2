"""Two local HTTP servers in a process of their own (`python -m bench.arrivals`): one that answers at once and notes how late each
run came, one that takes requests and never answers.

Commands come by standard input, a line each: `read` -> JSON of all arrivals since the last `read`: [tenant, target, scheduled_at
(epoch seconds), late_s] by this machine's clock. It prints the two ports at its start, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, cast

import uvloop

END = b"\r\n\r\n"
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Hanging(asyncio.Protocol):
    """Takes everything, answers nothing."""


class Prompt(asyncio.Protocol):
    """One request after the other, each answered when its body is complete."""

    arrivals: list[tuple[float, str, bytes]] = []  # noqa: RUF012 - of all connections, on purpose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(END)) >= 0:
            head = self._data[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(self._data) < end + len(END) + length:
                return
            body, self._data = self._data[end + len(END) :][:length], self._data[end + len(END) + length :]
            self.arrivals.append((time.time(), head.partition(b" ")[2].partition(b" ")[0].decode(), body))
            self._transport.write(ANSWER)


def read() -> list[Any]:
    """What has arrived since the last time."""
    arrivals, Prompt.arrivals[:] = list(Prompt.arrivals), []
    found = []
    for at_s, path, body in arrivals:
        run = json.loads(body)
        due_s = time.mktime(time.strptime(run["scheduled_at"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
        found.append((run["tenant"], path, due_s, round(at_s - due_s, 5)))
    return found


async def serve() -> None:
    """Prints its ports, then answers until standard input ends."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(kind, "127.0.0.1", 0, backlog=1024) for kind in (Prompt, Hanging)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    ended = asyncio.Event()

    def command() -> None:
        if sys.stdin.readline():
            print(json.dumps(read()), flush=True)
        else:
            ended.set()

    loop.add_reader(sys.stdin.fileno(), command)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(serve())
