"""Caps and rates: what Redis gives out, and that runners keep to it whatever happens to it or to them."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from bucketd.runner import limits
from bucketd.runner.ledger import Ledger
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.keys import Keys
from bucketd.store.limits import Ask, Limit, Places, Report, report
from tests.runner.conftest import World
from tests.support.processes import Process, Processes
from tests.support.proxy import Proxy
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until

LEASE_S = 0.6
CAP = Limit("target:1", 5)
RATE = Limit("rate:1", 20, is_rate=True)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client: Redis = Redis.from_url(redis_url)
    yield client
    await client.aclose()


class Caller:
    """Somebody who reports, and counts what he was given."""

    def __init__(self, name: str, redis: Redis, prefix: str) -> None:
        self.name, self._redis, self._keys = name, redis, Keys(prefix)
        self.number = self.acked = 0
        self.held = 0

    async def ask(self, wanted: int, *limits: Limit, held: int | None = None) -> Places | None:
        self.number += 1
        limits = limits or (CAP,)
        holds = dict.fromkeys(limits, self.held if held is None else held)
        said = Report(self.name, self.number, self.acked, holds, [Ask(wanted, limits)] if wanted else [])
        places = await report(self._redis, self._keys, said, lease_s=LEASE_S)
        if places is not None:
            self.acked = self.number
            self.held = (self.held if held is None else held) + sum(places.given)
        return places

    async def given(self, wanted: int, *limits: Limit, held: int | None = None) -> int:
        places = await self.ask(wanted, *limits, held=held)
        assert places is not None
        return sum(places.given)


@pytest.fixture
async def callers(redis: Redis, prefix: str) -> tuple[Caller, Caller]:
    """Two of them, a lease after Redis was empty."""
    one, two = Caller("one", redis, prefix), Caller("two", redis, prefix)
    assert await one.given(3) == 0  # nobody knows what is held
    await _after_a_lease(one)
    return one, two


async def _after_a_lease(caller: Caller) -> None:
    """Until the caller, who renews, gets something."""

    async def gets() -> bool:
        places = await caller.ask(0)
        return places is not None and places.left[CAP] > 0

    end = asyncio.get_running_loop().time() + 3 * LEASE_S
    while not await gets():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(LEASE_S / 6)


async def test_a_cap_is_shared_and_what_is_given_back_is_free(callers: tuple[Caller, Caller]) -> None:
    one, two = callers
    assert (await one.given(3), await two.given(4), await one.given(1)) == (3, 2, 0)
    assert await one.given(0, held=1) == 0  # two ended
    assert await two.given(9) == 2
    assert one.held + two.held == 5


async def test_what_is_not_renewed_is_free_after_a_lease(callers: tuple[Caller, Caller]) -> None:
    one, two = callers
    assert (await one.given(4), await two.given(5)) == (4, 1)
    await _after_a_lease(two)  # which holds its one by that
    assert await two.given(5) == 4


async def test_after_a_flush_nothing_is_given_for_a_lease(
    callers: tuple[Caller, Caller], redis: Redis, prefix: str
) -> None:
    one, two = callers
    assert await one.given(4) == 4
    for key in await redis.keys(f"{prefix}*"):
        await redis.delete(key)
    assert await two.given(5) == 0
    assert await one.given(1) == 0  # by which it has reported its four
    await _after_a_lease_of_both(one, two)
    assert await two.given(5) == 1


async def _after_a_lease_of_both(one: Caller, two: Caller) -> None:
    for _ in range(7):
        await asyncio.sleep(LEASE_S / 6)
        await one.ask(0)
        await two.ask(0)


async def test_a_redis_that_went_back_in_time_counts_as_lost(
    callers: tuple[Caller, Caller], redis: Redis, prefix: str
) -> None:
    one, two = callers
    assert await one.given(2) == 2
    await redis.set(Keys(prefix).limits_of("one"), one.acked - 1, px=1000)  # a failover lost the last report
    assert await one.given(1) == 0
    assert await two.given(1) == 0


async def test_an_older_report_that_arrives_late_is_ignored(callers: tuple[Caller, Caller]) -> None:
    one, two = callers
    assert await one.given(5) == 5
    one.number -= 2
    assert await one.ask(0, held=0) is None
    assert await two.given(1) == 0


async def test_a_rate_is_a_bucket_of_one_second_that_begins_empty(callers: tuple[Caller, Caller]) -> None:
    one, two = callers
    loop = asyncio.get_running_loop()
    begun, given = loop.time(), await one.given(100, RATE)
    assert given < 15
    while loop.time() < begun + 0.5:
        given += await one.given(100, RATE) + await two.given(100, RATE)
        await asyncio.sleep(0.02)
    assert 20 * 0.3 <= given <= 20 + 20 * (loop.time() - begun) + 1


async def test_a_place_counts_under_all_limits_or_none(callers: tuple[Caller, Caller]) -> None:
    one, two = callers
    tenant = Limit("tenant:acme", 2)
    assert await one.given(5, CAP, tenant) == 2
    places = await two.ask(0, CAP)
    assert places is not None
    assert places.left[CAP] == 3


def run_of(n: int, tenant: str = "t") -> Run:
    return Run(n.to_bytes(16, "big"), bytes(8), 1, Claim(Incarnation.__new__(Incarnation)), tenant, 1, None, "id", "{}")


def test_the_ledger_reports_until_a_zero_was_taken() -> None:
    ledger = Ledger()
    runs = [run_of(n) for n in range(3)]
    ledger.begin(runs, (CAP, RATE))
    first = ledger.held([])
    assert first == {CAP: 3}
    assert ledger.end(runs[:2])
    assert not ledger.end(runs[:2])  # a repeat
    assert ledger.end(runs[2:])
    ledger.reported(first)  # it was on its way when they ended
    assert ledger.held([]) == {CAP: 0}
    ledger.reported(ledger.held([]))
    assert not ledger


def test_the_ledger_reports_a_cap_as_it_is_now() -> None:
    ledger = Ledger()
    ledger.begin([run_of(1)], (CAP,))
    wider = CAP._replace(size=9)
    assert ledger.held([wider]) == {wider: 1}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of a second."""
    monkeypatch.setattr(limits, "LEASE_S", 1.0)


@asynccontextmanager
async def two_runners(world: World, **settings: Any) -> AsyncIterator[None]:
    async with world.runner(**settings), world.runner(**settings):
        yield


class Gauge:
    """Most requests at once, by what `key` says of a request. Runs in the target's thread."""

    def __init__(self, target: Target, key: Callable[[Any], str], delay_s: float) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._key = key
        answer = target._answer

        async def measured(raw: Any, reply: Reply) -> Any:
            name = key(target.requests[-1].body)
            self.now[name] = self.now.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.now[name])
            try:
                return await answer(raw, reply)
            finally:
                self.now[name] -= 1

        target._answer = measured  # type: ignore[method-assign]
        target.script = lambda request: Reply(delay_s=delay_s)


async def test_two_runners_keep_the_caps_of_target_and_tenant(world: World, target: Target, quick: None) -> None:
    gauge = Gauge(target, lambda body: str(body["tenant"]), 0.02)
    capped = world.target(target.url, max_running=3)
    world.sql("insert into bucketd.tenants (tenant, max_running) values ('small', 2)")
    free = world.target(target.url)
    at = world.now_s - 5
    world.put(world.fire(world.schedule(capped, tenant="wide"), at) for _ in range(40))
    world.put(world.fire(world.schedule(free, tenant="small"), at) for _ in range(30))
    world.put(world.fire(world.schedule(free, tenant="other"), at) for _ in range(20))
    async with two_runners(world):
        await world.until({"succeeded": 90}, 20)
        await world.until_quiet()
    assert (gauge.most["wide"], gauge.most["small"]) == (3, 2)
    assert {run["attempt"] for run in world.runs()} == {1}
    assert len(target.runs) == 90
    assert {run["reason"] for run in world.runs()} == {None}


async def test_a_rate_holds_for_two_runners(world: World, target: Target, quick: None) -> None:
    limited = world.target(target.url, rate_per_s=20)
    at = world.now_s - 5
    world.put(world.fire(world.schedule(limited), at) for _ in range(45))
    async with two_runners(world):
        await world.until({"succeeded": 45}, 20)
    times = sorted(request.monotonic_s for request in target.requests)
    for n, first in enumerate(times):
        within = sum(first <= t < first + 1.0 for t in times[n:])
        assert within <= 41, "a second's burst and a second's rate"
    assert times[-1] - times[0] >= 1.0


async def test_a_flush_in_the_middle_never_exceeds_the_cap(world: World, target: Target, quick: None) -> None:
    gauge = Gauge(target, lambda body: "all", 0.3)
    capped = world.target(target.url, max_running=4)
    at = world.now_s - 5
    world.put(world.fire(world.schedule(capped), at) for _ in range(24))
    async with two_runners(world, wake_poll_s=0.5):
        await wait_until(lambda: len(target.requests) >= 6, 10, "some calls")
        for key in world.redis.scan_iter(match=f"{world.settings.redis_prefix}:{{limits}}*"):
            world.redis.delete(key)
        await world.until({"succeeded": 24}, 20)
    assert gauge.most == {"all": 4}


PATIENT = "from bucketd.runner import limits; limits.LEASE_S = 1.0; from bucketd.runner.__main__ import main; main()"


async def test_places_of_a_killed_runner_come_back_after_a_lease(
    world: World, target: Target, quick: None, tmp_path: Path, processes: Processes
) -> None:
    target.script = lambda request: Reply(hang=True)
    capped = world.target(target.url, max_running=3)
    at = world.now_s - 5
    killed = Process("killed", [sys.executable, "-c", PATIENT], processes.environment(), tmp_path / "killed.log")
    try:
        await killed.wait_output("runner_started", 20)
        world.put(world.fire(world.schedule(capped), at) for _ in range(8))
        await wait_until(lambda: len(target.requests) == 3, 15, "as many calls as may be")
        await wait_until(lambda: world.statuses() == {"running": 3, "deferred": 5}, 10, "the others to wait")
    finally:
        killed.kill9()
        killed.reap()
    killed_s = time.monotonic()
    target.script = lambda request: Reply()
    async with world.runner():
        await wait_until(lambda: world.statuses().get("succeeded") == 5, 10, "the others")
    assert target.requests[3].monotonic_s - killed_s > 0.5, "a lease lasts a second, and was renewed within a quarter"


async def test_without_redis_what_is_limited_waits_and_the_rest_goes_on(
    world: World, target: Target, hook: int, quick: None
) -> None:
    capped = world.schedule(world.target(target.url + "/capped", max_running=5), overlap="allow")
    free = world.schedule(hook, overlap="allow")
    at = world.now_s
    async with (
        Proxy(world.settings.redis_url.get_secret_value()) as proxy,
        world.runner(redis_url=SecretStr(proxy.url), redis_read_timeout_s=0.2) as runner,
    ):
        await wait_until(lambda: runner.lanes.limits._acked, 5, "a first report")
        proxy.freeze()
        for n in range(10):
            world.run(capped, at - n)
            world.run(free, at - n)
        await world.until({"succeeded": 10, "deferred": 10}, 10)
        await wait_until(lambda: runner.totals["deferred"] >= 10, 5, "those that found no place")
        assert {run["attempt"] for run in world.runs(status="deferred")} == {0}
        before = runner.totals["woken"]
        looked = runner.waker._looked_at
        await wait_until(lambda: runner.waker._looked_at > looked + 0.3, 5, "some looks")
        assert runner.totals["woken"] == before, "rows are not taken and put back in a circle"
        proxy.freeze(on=False)
        await world.until({"succeeded": 20}, 10)


async def test_a_raised_cap_lets_waiting_runs_go(world: World, target: Target, quick: None) -> None:
    target.script = lambda request: Reply(hang=True)
    capped = world.target(target.url, max_running=1)
    at = world.now_s - 5
    world.put(world.fire(world.schedule(capped), at) for _ in range(4))
    async with world.runner(drain_timeout_s=0.2):
        await wait_until(lambda: world.statuses() == {"running": 1, "deferred": 3}, 10, "one at once")
        world.sql("update bucketd.targets set max_running = 3")
        await wait_until(lambda: len(target.requests) == 3, 10, "three at once")
    assert world.statuses()["deferred"] == 1


async def test_new_runs_stand_behind_those_that_wait(world: World, target: Target, quick: None) -> None:
    """They come while the place is taken and while it is free, for the moment that a waiting row needs to be fetched."""
    target.script = lambda request: Reply(delay_s=0.01)
    capped = world.target(target.url, max_running=1)
    schedules = [world.schedule(capped) for _ in range(45)]
    at = world.now_s
    async with world.runner():
        world.put(world.fire(schedule, at - 50) for schedule in schedules[:30])
        await wait_until(lambda: world.statuses().get("deferred", 0) >= 25, 10, "a queue")
        for schedule in schedules[30:]:
            called = len(target.requests)
            world.put([world.fire(schedule, at - 5)])
            await wait_until(lambda called=called: len(target.requests) > called, 5, "another call")  # type: ignore[misc]
        await world.until({"succeeded": 45}, 20)
    order = [run["scheduled_at"] for run in target.runs]
    assert order == sorted(order)
