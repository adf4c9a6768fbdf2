"""Just enough of the two wire protocols to know when the reply to one certain request is complete.

A reader is fed both directions of one connection, in order. `client(data)` answers whether `data` begins the request
that is looked for; from then on `server(data)` answers whether its reply is complete.
"""

from collections.abc import Iterator
from typing import Protocol

import hiredis

UNTYPED_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest: they come before the start-up message


class Wire(Protocol):
    """A reader of one connection."""

    def client(self, data: bytes, marker: bytes | None) -> bool: ...
    def server(self, data: bytes) -> bool: ...


class PostgresWire:
    """The request is a Query or Bind that contains the marker, or a Bind to a statement whose text contains it.

    (A Parse does not count: its reply is lost before anything was executed, and the client only prepares again.)
    """

    def __init__(self) -> None:
        self._from_client = b""
        self._from_server = b""
        self._started = False
        self._statements: dict[bytes, bytes] = {}
        self._asked = 0  # requests that are each answered by one ReadyForQuery
        self._answered = 0
        self._awaited = 0

    def client(self, data: bytes, marker: bytes | None) -> bool:
        found = False
        self._from_client += data
        for kind, body in self._client_messages():
            if kind == b"P":
                name, _, text = body.partition(b"\0")
                self._statements[name] = text
            if marker is not None and not found and self._runs(kind, body, marker):
                found = True
                self._awaited = self._asked + 1
            if kind in (b"Q", b"S", b"F", b""):
                self._asked += 1
        return found

    def server(self, data: bytes) -> bool:
        self._from_server += data
        if not self._answered and self._from_server[:1] == b"N":  # the one-byte no to an SSLRequest
            self._from_server = self._from_server[1:]
        while len(self._from_server) >= 5:
            length = 1 + int.from_bytes(self._from_server[1:5])
            if len(self._from_server) < length:
                break
            self._answered += self._from_server[:1] == b"Z"
            self._from_server = self._from_server[length:]
        return bool(self._awaited) and self._answered >= self._awaited

    def _runs(self, kind: bytes, body: bytes, marker: bytes) -> bool:
        if kind == b"Q":
            return marker in body
        if kind != b"B":
            return False
        _, _, rest = body.partition(b"\0")
        statement, _, values = rest.partition(b"\0")
        return marker in values or marker in self._statements.get(statement, b"")

    def _client_messages(self) -> Iterator[tuple[bytes, bytes]]:
        """(type, body) of each whole message; type is empty for the start-up message."""
        while True:
            head = 5 if self._started else 4
            buffer = self._from_client
            if len(buffer) < head:
                return
            length = head - 4 + int.from_bytes(buffer[head - 4 : head])
            if len(buffer) < length:
                return
            self._from_client = buffer[length:]
            kind, body = buffer[: head - 4], buffer[head:length]
            if not self._started and int.from_bytes(body[:4]) in UNTYPED_REQUESTS:
                continue
            self._started = True
            yield kind, body


class RedisWire:
    """The request is a chunk of commands that contains the marker; its reply is complete when each command has one."""

    def __init__(self) -> None:
        self._commands = hiredis.Reader(replyError=ValueError)
        self._replies = hiredis.Reader(replyError=ValueError)
        self._asked = 0
        self._answered = 0
        self._found = False

    def client(self, data: bytes, marker: bytes | None) -> bool:
        self._asked += _complete(self._commands, data)
        found = marker is not None and marker in data
        self._found |= found
        return found

    def server(self, data: bytes) -> bool:
        self._answered += _complete(self._replies, data)
        return self._found and self._answered >= self._asked


class BlindWire:
    """Of a protocol that it does not know (HTTP, anything over TLS), nothing can be looked for."""

    def client(self, data: bytes, marker: bytes | None) -> bool:
        if marker is not None:
            raise ValueError("expected Postgres or Redis in the clear, to find a request in")
        return False

    def server(self, data: bytes) -> bool:
        return False


def _complete(reader: hiredis.Reader, data: bytes) -> int:
    reader.feed(data)
    count = 0
    while reader.gets() is not False:
        count += 1
    return count
