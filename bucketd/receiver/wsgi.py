"""The check in front of a WSGI application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any, TypeAlias

from bucketd.receiver.deliveries import Delivery
from bucketd.receiver.refusal import Refused

Environ: TypeAlias = dict[str, Any]
WsgiApp: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Check: TypeAlias = Callable[[Mapping[str, str], bytes], Delivery]


class WsgiGate:
    """Lets checked requests through, with their body; answers all others itself."""

    def __init__(self, app: WsgiApp, check: Check, body_bytes: int) -> None:
        self._app = app
        self._check = check
        self._body_bytes = body_bytes

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            body = self._body(environ)
            environ["bucketd.delivery"] = self._check(_headers(environ), body)
        except Refused as refused:
            return _refuse(start_response, refused)
        environ["wsgi.input"] = BytesIO(body)
        return self._app(environ, start_response)

    def _body(self, environ: Environ) -> bytes:
        length = environ.get("CONTENT_LENGTH") or ""
        if not (length.isascii() and length.isdigit()):
            raise Refused(411, "expected a content-length")
        if int(length) > self._body_bytes:
            raise Refused(413, f"expected at most {self._body_bytes:,} bytes")
        body: bytes = environ["wsgi.input"].read(int(length))
        return body


def _headers(environ: Environ) -> dict[str, str]:
    return {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}


def _refuse(start_response: Callable[..., Any], refused: Refused) -> Iterable[bytes]:
    text = refused.reason.encode()
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
    start_response(f"{refused.status} {HTTPStatus(refused.status).phrase}", headers)
    return [text]
