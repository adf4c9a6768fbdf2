"""Two local HTTP servers in a process of their own (`python -m bench.arrivals`): one that answers at once and notes how late each
run came, one that takes requests and never answers.

Commands come by standard input, a line each, and are answered by a line of JSON about all that arrived since the last one. `read` ->
[tenant, target, scheduled_at (epoch seconds), late_s] of single calls; `runs` -> [schedule, scheduled_at, late_s, attempt], those of
batches too. Late by this machine's clock. It prints the two ports at its start, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import calendar
import json
import sys
import time
from functools import cache
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
    """Single calls that have arrived since the last time."""
    found = []
    for at_s, path, body in _taken():
        run = json.loads(body)
        due_s = _epoch(run["scheduled_at"])
        found.append((run["tenant"], path, due_s, round(at_s - due_s, 5)))
    return found


def runs() -> list[Any]:
    """Runs that have arrived since the last time, singly or in batches."""
    found = []
    for at_s, _, body in _taken():
        sent = json.loads(body)
        for run in sent if isinstance(sent, list) else [sent]:
            due_s = _epoch(run["scheduled_at"])
            found.append((run["schedule"], due_s, round(at_s - due_s, 5), run["attempt"]))
    return found


def _taken() -> list[tuple[float, str, bytes]]:
    arrivals, Prompt.arrivals[:] = list(Prompt.arrivals), []
    return arrivals


@cache
def _epoch(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


ANSWERS = {"read": read, "runs": runs}


async def serve() -> None:
    """Prints its ports, then answers until standard input ends."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(kind, "127.0.0.1", 0, backlog=1024) for kind in (Prompt, Hanging)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    ended = asyncio.Event()

    def command() -> None:
        if word := sys.stdin.readline().strip():
            print(json.dumps(ANSWERS[word]()), flush=True)
        else:
            ended.set()

    loop.add_reader(sys.stdin.fileno(), command)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(serve())
