"""The local HTTP target, a process of its own: `python -m bench.target`.

It takes batches, and answers 204 as soon as a body is complete: a few microseconds a request, for the bench is about the
sender. Bodies are kept as they came, and looked at afterwards, each run of each. Commands come by standard input, a line
each, and are answered by a line of JSON: `count` -> runs so far, `verify FIRES DUE_S CRONS OFFSET_S` -> Deliveries. It ends
when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from bench.load import Load, number_of

END = b"\r\n\r\n"
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
SHOWN = 5


@dataclass(slots=True)
class Request:
    """One request. `arrived_s`: epoch seconds of its first byte."""

    arrived_s: float
    runs: int = 0  # as its header says
    parts: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Deliveries:
    """What came in. `first_s`, `last_s`: after the due instant."""

    requests: int = 0
    delivered: int = 0
    doubled: int = 0
    missing: int = 0
    wrong: int = 0
    early: int = 0
    first_s: float | None = None
    last_s: float | None = None
    wrong_examples: list[str] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One connection: requests one after the other, bodies by content-length."""

    requests: list[Request] = []  # noqa: RUF012 - of all connections, on purpose
    runs = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._head = b""
        self._left = 0

    def data_received(self, data: bytes) -> None:
        while data:
            if not self._left:
                self._head += data
                end = self._head.find(END)
                if end < 0:
                    return
                data = self._head[end + len(END) :]
                self._begin(self._head[:end])
                self._head = b""
            part = data[: self._left]
            self._request.parts.append(part)
            self._left -= len(part)
            data = data[len(part) :]
            if not self._left:
                Connection.runs += self._request.runs
                self._transport.write(ANSWER)

    def _begin(self, head: bytes) -> None:
        self._request = Request(time.time(), 1)
        for line in head.lower().split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"bucketd-batch":
                self._request.runs = int(value)
        self.requests.append(self._request)


def verify(requests: list[Request], load: Load, offset_s: float) -> Deliveries:
    """Looks at every run that came. `offset_s`: how far the cluster's clock is ahead of this machine's."""
    seen = bytearray(load.fires)
    found = Deliveries(requests=len(requests))
    for request in requests:
        runs = json.loads(b"".join(request.parts))
        runs = runs if isinstance(runs, list) else [runs]
        after_s = request.arrived_s + offset_s - load.due_s
        found.delivered += len(runs)
        found.early += len(runs) if after_s < 0 else 0
        errors = [error for run in runs if (error := load.wrong(run))]
        if len(runs) != request.runs:
            errors.append(f"bucketd-batch: expected {len(runs)}, got {request.runs}")
        found.wrong += len(errors)
        found.wrong_examples = (found.wrong_examples + errors)[:SHOWN]
        for run in runs:
            number = number_of(str(run.get("schedule")))
            if number is not None and number < load.fires:
                found.doubled += seen[number]
                seen[number] = 1
        found.first_s = after_s if found.first_s is None else min(found.first_s, after_s)
        found.last_s = after_s if found.last_s is None else max(found.last_s, after_s)
    found.missing = seen.count(0)
    return found


def answer(line: str) -> str:
    """The answer to one command."""
    word, *arguments = line.split()
    if word == "count":
        return str(Connection.runs)
    if word == "verify":
        fires, due_s, crons, offset_s = arguments
        load = Load(int(fires), int(due_s), crons == "True")
        return json.dumps(asdict(verify(Connection.requests, load, float(offset_s))))
    raise ValueError(f"expected count or verify, got {word!r}")


async def serve(connection: type[Connection] = Connection, answer: Callable[[str], str] = answer) -> None:
    """Prints its port, then answers until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()

    def command() -> None:
        line = sys.stdin.readline()
        if line:
            print(answer(line), flush=True)
        else:
            ended.set()

    loop.add_reader(sys.stdin.fileno(), command)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
