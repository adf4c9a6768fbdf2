"""The endpoint: what it answers, what it refuses, and that a loop that hangs is found out."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from bucketd.store.config import Settings
from bucketd.store.endpoint import Watched, serving
from bucketd.store.errors import ConfigError
from bucketd.store.exposition import Sample
from bucketd.store.listen import Listen
from bucketd.store.metrics import Definition

ANY = "127.0.0.1:0"
LEVEL = Definition("bucketd_level", "gauge", "Level.")
OF_ALL = (
    Definition("bucketd_build_info", "gauge", "Build.", ("version", "role")),
    Definition("bucketd_ready", "gauge", "Ready."),
    LEVEL,
)


def watched(checks: dict[str, bool]) -> Watched:
    return Watched("tester", OF_ALL, lambda: [Sample("bucketd_level", 42)], lambda: checks)


@asynccontextmanager
async def served(checks: dict[str, bool]) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(ANY, watched(checks)) as address, httpx.AsyncClient(base_url=f"http://{address}") as client:
        yield client


async def test_metrics_in_the_format_that_is_asked_for() -> None:
    async with served({}) as client:
        plain = await client.get("/metrics")
        modern = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert "bucketd_level 42.0\n" in plain.text
    assert 'role="tester"' in plain.text
    assert "process_cpu_seconds_total" in plain.text
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


async def test_ready_is_what_all_checks_say_and_health_does_not_care() -> None:
    checks = {"stores": True, "leases": True}
    async with served(checks) as client:
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "checks": checks})
        assert "bucketd_ready 1.0\n" in (await client.get("/metrics")).text
        checks["stores"] = False
        unready = await client.get("/readyz")
        assert (unready.status_code, json.loads(unready.text)["checks"]["stores"]) == (503, False)
        assert "bucketd_ready 0.0\n" in (await client.get("/metrics")).text
        assert (await client.get("/healthz")).status_code == 200


async def test_nothing_else_is_answered() -> None:
    async with served({}) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/metrics", content=b"x")).status_code == 405


async def test_without_an_address_nothing_listens() -> None:
    async with serving("", watched({})) as address:
        assert address is None


async def test_a_port_that_is_taken_is_told_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*BUCKETD_METRICS_LISTEN"):
            async with serving(f"127.0.0.1:{port}", watched({})):
                pass


async def test_the_port_is_free_when_the_block_ends() -> None:
    async with serving(ANY, watched({})) as address:
        assert address is not None
    with socket.create_server((address.host, address.port)):
        pass


def test_a_loop_that_hangs_answers_no_probe_and_one_that_goes_on_does() -> None:
    began, address, go_on = threading.Event(), list[Listen](), threading.Event()

    async def live(stop: asyncio.Event, hang: asyncio.Event) -> None:
        async with serving(ANY, watched({})) as found:
            assert found is not None
            address.append(found)
            began.set()
            await hang.wait()
            go_on.wait()  # blocks the loop itself, as a defect would
            await stop.wait()

    loop = asyncio.new_event_loop()
    stop, hang = asyncio.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(live(stop, hang)))
    thread.start()
    try:
        assert began.wait(10)
        url = f"http://{address[0]}/healthz"
        assert httpx.get(url, timeout=10).status_code == 200
        loop.call_soon_threadsafe(hang.set)
        with pytest.raises(httpx.TimeoutException):
            httpx.get(url, timeout=0.3)
        go_on.set()
        assert httpx.get(url, timeout=10).status_code == 200
    finally:
        go_on.set()
        loop.call_soon_threadsafe(hang.set)
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9464", Listen("127.0.0.1", 9464)),
        (":9464", Listen("", 9464)),
        ("[::1]:0", Listen("::1", 0)),
        ("host.example:65535", Listen("host.example", 65_535)),
    ],
)
def test_addresses(text: str, found: Listen) -> None:
    assert Listen.parse(text) == found
    assert str(found) == text


@pytest.mark.parametrize("text", ["9464", "host:", "host:x", "host:65536", "host:-1", "::1:80", "host:٣"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="metrics_listen: expected host:port"):
        Settings.load({"BUCKETD_METRICS_LISTEN": text})
