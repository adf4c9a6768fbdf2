"""The check in front of an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from bucketd.receiver.deliveries import Delivery
from bucketd.receiver.refusal import Refused

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Check: TypeAlias = Callable[[Mapping[str, str], bytes], Delivery]


class _Gone(Exception):
    """The sender went away before its body was here."""


class AsgiGate:
    """Lets checked requests through, with their body; answers all others itself."""

    def __init__(self, app: AsgiApp, check: Check, body_bytes: int) -> None:
        self._app = app
        self._check = check
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":  # carries no signature
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._body(receive)
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            delivery = self._check(headers, body)
        except _Gone:
            return
        except Refused as refused:
            await _refuse(send, refused)
            return
        await self._app({**scope, "bucketd.delivery": delivery}, _again(body, receive), send)

    async def _body(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise _Gone
            body += message.get("body", b"")
            if len(body) > self._body_bytes:
                raise Refused(413, f"expected at most {self._body_bytes:,} bytes")
            if not message.get("more_body", False):
                return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read once more, and then what comes."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def first_the_body() -> MutableMapping[str, Any]:
        return left.pop() if left else await receive()

    return first_the_body


async def _refuse(send: Send, refused: Refused) -> None:
    text = refused.reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
