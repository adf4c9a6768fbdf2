"""The application itself: routes, bodies, lifespan, and stores that are away."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.api import App, create_app
from bucketd.api.messages import BODY_BYTES, Problem, Request
from bucketd.api.reports import parse
from bucketd.store.config import Settings
from tests.api.conftest import Desk
from tests.support.asgi import AsgiClient, lifespan
from tests.support.proxy import Proxy

RUN = "20261130T090000Z-" + "a" * 32


@pytest.mark.parametrize(
    "path", ["/", "/runs", f"/runs/{RUN}", f"/runs/{RUN}/cancel", f"/runs/{RUN}/complete/x", f"/x/runs/{RUN}/complete"]
)
async def test_other_paths_are_not_there(path: str) -> None:
    answer = await AsgiClient(App(Settings.load({}))).post(path, {"attempt": 1})
    assert (answer.status, answer.json["title"], answer.json["type"]) == (404, "Not Found", "about:blank")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_other_methods_are_refused(method: str) -> None:
    answer = await AsgiClient(App(Settings.load({}))).request(method, f"/runs/{RUN}/heartbeat")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"1", b"\xff", b'"x"', b"[" * 60_000, b"{}", b'{"attempt": "1"}', b'{"attempt": true}', b'{"attempt": 0}',
        b'{"attempt": 1.0}', b'{"attempt": 32768}', b'{"attempt": 1, "eror": "x"}', b'{"attempt": 1, "error": ""}',
        b'{"attempt": 1, "error": 5}', b'{"attempt": 1, "error": "x", "result": 1}', b'{"attempt": 1, "retry": "no"}',
        b'{"attempt": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)  # fmt: skip
async def test_what_cannot_be_understood_is_refused(body: bytes) -> None:
    answer = await AsgiClient(App(Settings.load({}))).post(f"/runs/{RUN}/complete", body)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json["detail"].startswith("expected ")


async def test_a_heartbeat_ends_nothing() -> None:
    client = AsgiClient(App(Settings.load({})))
    answer = await client.post(f"/runs/{RUN}/heartbeat", {"attempt": 1, "error": "x"})
    assert (answer.status, answer.json["detail"]) == (400, "expected no members but attempt, got error")


@pytest.mark.parametrize(
    ("body", "header"), [({"attempt": 1}, "2"), ({}, "x"), ({}, "-1"), ({}, "٣"), ({}, "9" * 10_000)]
)
async def test_two_attempts_or_none_are_refused(body: dict[str, int], header: str) -> None:
    request = Request("POST", "", {"bucketd-attempt": header}, json.dumps(body).encode())
    with pytest.raises(Problem) as caught:
        parse("complete", RUN, request)
    assert caught.value.reply.status == 400


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=3), part, max_size=2),
    max_leaves=4,
)
_MEMBERS = st.dictionaries(st.sampled_from(["attempt", "error", "result", "retry", "x"]), _VALUES)


@settings(deadline=None)
@given(st.binary(max_size=100) | _MEMBERS.map(lambda members: json.dumps(members).encode()))
def test_a_body_is_understood_or_refused(body: bytes) -> None:
    try:
        report = parse("complete", RUN, Request("POST", "", {}, body))
    except Problem as problem:
        refused = problem.reply.status
    else:
        members: Any = json.loads(body)
        assert report.attempt == members["attempt"]
        assert (report.outcome.error is None) == (members.get("error") is None)
        return
    assert refused == 400


async def test_a_large_body_is_refused_before_it_is_read() -> None:
    client = AsgiClient(App(Settings.load({})))
    path = f"/runs/{RUN}/complete"
    announced = await client.request("POST", path, [], {"content-length": str(BODY_BYTES + 1)})
    huge = await client.request("POST", path, [], {"content-length": "9" * 4_400})
    found = await client.request("POST", path, [b"x" * BODY_BYTES, b"x", b"never asked for"])
    assert [(answer.status, answer.headers["connection"]) for answer in (announced, huge, found)] == [
        (413, "close")
    ] * 3


async def test_a_body_in_parts_is_one_body(api: AsgiClient, desk: Desk) -> None:
    run = desk.run()
    parts = [b'{"atte', b"", b'mpt": 1', b', "result": "' + b"x" * 60_000, b'"}']
    assert (await api.request("POST", f"/runs/{run.id}/complete", parts)).status == 200
    assert run.row["status"] == "succeeded"


async def test_nobody_is_answered_who_went_away(api: AsgiClient, desk: Desk) -> None:
    run = desk.run()
    assert await api.leave("POST", f"/runs/{run.id}/complete") == []
    assert run.row["status"] == "running"


async def test_lifespan_opens_and_closes(api_settings: Settings, desk: Desk) -> None:
    app, run = App(api_settings), desk.run()
    client, path = AsgiClient(app, mounted="/bucketd"), f"/runs/{run.id}/heartbeat"
    async with lifespan(app) as answer:
        assert answer == {"type": "lifespan.startup.complete"}
        assert (await client.post(path, {"attempt": 1})).status == 200
    closed = await client.post(path, {"attempt": 1})
    assert (closed.status, closed.json["detail"][:8]) == (503, "not open")


async def test_a_start_without_postgres_says_why() -> None:
    async with lifespan(App(Settings.load({}))) as answer:
        assert answer["type"] == "lifespan.startup.failed"
        assert "BUCKETD_DSN" in answer["message"]


async def test_the_factory_reads_the_environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("BUCKETD_DSN", url)
    async with lifespan(create_app()) as answer:
        assert answer["type"] == "lifespan.startup.complete"


async def test_postgres_away_is_a_503_and_heals(url: str, desk: Desk) -> None:
    run = desk.run()
    async with Proxy(url) as proxy, lifespan(app := App(Settings.load({}, dsn=proxy.url))):
        client = AsgiClient(app)
        proxy.refuse()
        proxy.cut_now()
        away = await client.post(f"/runs/{run.id}/complete", {"attempt": 1})
        assert (away.status, away.headers["retry-after"]) == (503, "1")
        assert run.row["status"] == "running"
        proxy.refuse(False)
        statuses = [(await client.post(f"/runs/{run.id}/complete", {"attempt": 1})).status for _ in range(5)]
        assert statuses[-1] == 200
        assert run.row["status"] == "succeeded"
