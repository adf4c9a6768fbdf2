"""The same check around whole applications: a WSGI server over sockets, and ASGI driven as a server drives it."""

import http.client
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from bucketd.receiver import Delivery, Receiver
from tests.receiver.requests import RUN_ID, SECRET, envelope, signed
from tests.support.asgi import AsgiClient, lifespan

NOW_S = 1_800_000_000


class Quiet(WSGIRequestHandler):
    """Writes no log line a request."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def seen() -> list[tuple[Delivery, bytes]]:
    """What the application behind the check was given."""
    return []


@pytest.fixture
def port(seen: list[tuple[Delivery, bytes]]) -> Iterator[int]:
    """A WSGI server with the check in front."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.append((environ["bucketd.delivery"], environ["wsgi.input"].read()))
        start_response("202 Accepted", [("Content-Length", "2")])
        return [b"ok"]

    receiver = Receiver(SECRET, body_bytes=2_000, clock=lambda: NOW_S)
    with make_server("127.0.0.1", 0, receiver.wsgi(app), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def post(port: int, headers: dict[str, str], body: bytes, *, length: str | None = "") -> tuple[int, bytes]:
    """`length`: what content-length says; empty: the truth; None: nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.putrequest("POST", "/")
        for name, value in headers.items():
            connection.putheader(name, value)
        if length is not None:
            connection.putheader("content-length", length or str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_wsgi(port: int, seen: list[tuple[Delivery, bytes]]) -> None:
    headers, body = signed(envelope(2), at_s=NOW_S)
    assert post(port, headers, body) == (202, b"ok")
    ((delivery, content),) = seen
    assert delivery.runs[0].run_id == RUN_ID
    assert content == body  # whole, for who wants to read it again
    assert post(port, headers, body + b" ")[0] == 401
    assert post(port, *signed({}, at_s=NOW_S))[0] == 400
    assert post(port, *signed(envelope(1), at_s=NOW_S)) == (409, b"a later attempt than 1 has come already")
    for length, status in (("2001", 413), ("-1", 411), ("²", 411), (None, 411)):
        assert post(port, headers, b"", length=length)[0] == status
    assert len(seen) == 1


@pytest.fixture
def app(seen: list[tuple[Delivery, bytes]]) -> Any:
    """An ASGI application that reads its body, with the check in front."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                assert (await receive())["type"] == f"lifespan.{word}"
                await send({"type": f"lifespan.{word}.complete"})
            return
        message = await receive()
        assert not message["more_body"]
        seen.append((scope["bucketd.delivery"], message["body"]))
        report = scope["bucketd.delivery"].report({"x": 503})
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": report})

    return Receiver(SECRET, body_bytes=2_000, clock=lambda: NOW_S).asgi(inner)


async def test_asgi(app: Any, seen: list[tuple[Delivery, bytes]]) -> None:
    client = AsgiClient(app)
    headers, body = signed(envelope(2), at_s=NOW_S)
    answer = await client.request("POST", "/", [body[:9], b"", body[9:]], headers)
    assert (answer.status, answer.json) == (200, {"runs": [{"run_id": "x", "status": 503}]})
    ((delivery, content),) = seen
    assert delivery.runs[0].run_id == RUN_ID
    assert content == body
    assert (await client.post("/", body + b" ", headers)).status == 401
    malformed, nothing = signed({}, at_s=NOW_S)[0], json.dumps({}).encode()
    assert (await client.post("/", nothing, malformed)).status == 400
    stale, earlier = signed(envelope(1), at_s=NOW_S)
    refused = await client.post("/", earlier, stale)
    assert (refused.status, refused.raw) == (409, b"a later attempt than 1 has come already")
    assert refused.headers["content-length"] == str(len(refused.raw))
    assert len(seen) == 1


async def test_asgi_stops_reading_at_the_bound_and_when_the_sender_leaves(app: Any) -> None:
    sent: list[Any] = []

    async def endless() -> dict[str, Any]:
        sent.append(1)
        return {"type": "http.request", "body": b"x" * 500, "more_body": True}

    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    await app({"type": "http", "headers": []}, endless, send)
    assert answers[0]["status"] == 413
    assert len(sent) == 5
    assert await AsgiClient(app).leave("POST", "/") == []


async def test_asgi_lets_lifespan_through_and_no_websocket(app: Any) -> None:
    async with lifespan(app) as answer:
        assert answer["type"] == "lifespan.startup.complete"
    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    await app({"type": "websocket", "headers": []}, None, send)
    assert answers == [{"type": "websocket.close", "code": 1008}]
