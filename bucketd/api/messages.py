"""ASGI's messages: a request with its body, bounded, and a reply in JSON. What goes wrong is a problem document (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

BODY_BYTES = 64 * 1024


class Disconnected(Exception):
    """The client went away before its request was complete."""


class Problem(Exception):
    """A refusal: a status, what was expected and what came, and members beside them that a program can use."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, headers: Mapping[str, str] | None = None, **members: object
    ) -> None:
        super().__init__(detail)
        self.reply = Reply(
            status,
            {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail, **members},
            {"content-type": "application/problem+json", **(headers or {})},
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are lower-case; of one that came twice, the last."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply; `content` goes out as JSON."""

    status: HTTPStatus
    content: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


def path_of(scope: Scope) -> str:
    """The path below the place where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(headers: Mapping[str, str], receive: Receive) -> bytes:
    """The whole body. Raises Problem if it is larger than BODY_BYTES, without reading on, and Disconnected."""
    announced = headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 9 or int(announced) > BODY_BYTES):
        raise _too_large()
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            raise _too_large()
        more = message.get("more_body", False)
    return bytes(body)


async def write(reply: Reply, send: Send) -> None:
    """Sends a reply."""
    content = json.dumps(reply.content).encode()
    headers = {"cache-control": "no-store", **reply.headers, "content-length": str(len(content))}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(reply.status), "headers": raw})
    await send({"type": "http.response.body", "body": content})


def _too_large() -> Problem:
    # What was not read would be taken for the next request.
    detail = f"expected a body of at most {BODY_BYTES:,} bytes, got more"
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, headers={"connection": "close"})
