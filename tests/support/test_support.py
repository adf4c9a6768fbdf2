"""The rest of the test support, each against a real counterpart."""

import asyncio
import time

import httpx
import psycopg
import pytest
from redis.asyncio import Redis

from bucketd.embedded import Server
from bucketd.store.config import Settings
from tests.support.processes import Processes
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until

WAIT_S = 10


async def test_wait_until_names_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.05 s for the moon; last answer: 0"):
        await wait_until(lambda: 0, 0.05, "the moon")


async def test_wait_until_takes_async_conditions_and_gives_their_value() -> None:
    answers = iter([None, "", "yes"])

    async def ask() -> str | None:
        return next(answers)

    assert await wait_until(ask, WAIT_S, "a yes") == "yes"


async def test_target_records_single_runs_and_arrays(target: Target) -> None:
    before = time.time()
    async with httpx.AsyncClient() as client:
        await client.post(target.url, json={"run": 1}, headers={"webhook-id": "r1"})
        await client.post(target.url, json=[{"run": 2}, {"run": 3}])
    assert await target.wait_runs(3, WAIT_S) == [{"run": 1}, {"run": 2}, {"run": 3}]
    first = target.requests[0]
    assert first.headers["Webhook-Id"] == "r1"
    assert before <= first.wall_s <= time.time()
    assert (first.method, first.path) == ("POST", "/hook")


async def test_target_answers_as_scripted(target: Target) -> None:
    target.replies.append(Reply(503, headers={"Retry-After": "7"}))
    target.replies += [Reply(delay_s=0.2), Reply(reset=True), Reply(hang=True)]
    target.script = lambda request: Reply(400 if request.body == {"bad": True} else 201, body={"ok": True})
    async with httpx.AsyncClient(timeout=0.5) as client:
        unavailable = await client.post(target.url, json={})
        assert (unavailable.status_code, unavailable.headers["Retry-After"]) == (503, "7")
        begun = time.monotonic()
        assert (await client.post(target.url, json={})).status_code == 200
        assert time.monotonic() - begun >= 0.2
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(target.url, json={})
        with pytest.raises(httpx.ReadTimeout):
            await client.post(target.url, json={})
        assert (await client.post(target.url, json={"bad": True})).status_code == 400
        last = await client.post(target.url, content=b"\xff")
        assert (last.status_code, last.json()) == (201, {"ok": True})
    assert len(target.requests) == 6
    assert target.runs[-1] == b"\xff"
    await wait_until(lambda: target.in_flight == 0, WAIT_S, "the hanging request to end")


async def test_target_stops_with_a_hanging_request() -> None:
    target = Target()
    target.start()
    target.replies.append(Reply(hang=True))
    async with httpx.AsyncClient(timeout=WAIT_S) as client:
        call = asyncio.ensure_future(client.post(target.url, json={}))
        await wait_until(lambda: target.in_flight, WAIT_S, "the request to arrive")
        await asyncio.to_thread(target.stop)
        with pytest.raises(httpx.HTTPError):
            await call


def test_each_test_has_a_migrated_database(dsn: str, empty_dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) > 0 from bucketd.migrations").fetchone() == (True,)
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("select to_regclass('bucketd.migrations')").fetchone() == (None,)


async def test_own_redis_can_be_flushed(own_redis: Server, redis_url: str, prefix: str) -> None:
    async with Redis.from_url(own_redis.url) as own, Redis.from_url(redis_url) as shared:
        await own.set(prefix, 1)
        await shared.set(prefix, 1)
        await own.flushall()
        assert await own.exists(prefix) == 0
        assert await shared.exists(prefix) == 1


async def test_processes_are_stopped_woken_and_killed(processes: Processes, settings: Settings) -> None:
    process = processes.start("nonsense-command", name="broken")
    assert await process.wait_exit(WAIT_S) != 0
    assert process.output()
    assert settings.redis_prefix == processes.environment()["BUCKETD_REDIS_PREFIX"]
