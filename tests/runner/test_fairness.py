"""Whose turn it is, what a host may use, and that neither a hanging host nor a crowding tenant keeps others waiting."""

import asyncio
from collections import Counter
from statistics import quantiles
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.runner.headroom import LAG_S, LEAST, Headroom
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.runner.shares import ALONE_S, SLOW_S, Pace, Shares
from bucketd.runner.turns import BACKGROUND_EVERY, Turns, Waiting
from bucketd.store.runners import CallTarget
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target
from tests.support.waiting import wait_until

CLAIM = Claim(Incarnation(UUID(int=1)))
NOW = 1_000.0


def waiting(
    tenant: str, target_id: int = 1, host: str = "h", *, since: float = NOW, background: bool = False
) -> Waiting:
    run = Run(b"s" * 16, b"t" * 8, 1, CLAIM, tenant, target_id, None, "id", "{}", background)
    return Waiting(since, run, _target(target_id), host)


def _target(target_id: int) -> CallTarget:
    target = CallTarget.__new__(CallTarget)  # of a target, turns know its number alone
    object.__setattr__(target, "target_id", target_id)
    return target


def anybody(name: str) -> bool:
    return True


def drawn(turns: Turns, number: int) -> list[Waiting]:
    found = [turns.next(anybody, anybody) for _ in range(number)]
    return [item for item in found if item is not None]


def test_a_tenant_has_less_of_a_loop_that_lags_and_all_of_it_again_when_it_does_not() -> None:
    headroom = Headroom(256)
    for _ in range(100):
        headroom.ticked(0.0)
    assert headroom.allowance == 256
    headroom.ticked(LAG_S * 1.1)
    assert LEAST < headroom.allowance < 256
    for _ in range(100):
        headroom.ticked(1.0)
    assert headroom.allowance == LEAST
    for _ in range(256):
        headroom.ticked(LAG_S)
    assert headroom.allowance == 256
    assert Headroom(2).allowance == 2


def test_turns_pass_over_a_tenant_that_may_not_begin() -> None:
    turns = Turns()
    turns.add(waiting("crowd"))
    turns.add(waiting("small"))
    item = turns.next(lambda tenant: tenant != "crowd", anybody)
    assert item is not None
    assert item.run.tenant == "small"
    assert turns.next(lambda tenant: tenant != "crowd", anybody) is None


def test_turns_go_round_tenants_whatever_waits_of_each() -> None:
    turns = Turns()
    for _ in range(100):
        turns.add(waiting("crowd"))
    for _ in range(3):
        turns.add(waiting("small"))
    assert Counter(item.run.tenant for item in drawn(turns, 6)) == {"crowd": 3, "small": 3}


def test_many_targets_are_no_more_turns_for_their_tenant() -> None:
    turns = Turns()
    for target_id in range(50):
        turns.add(waiting("wide", target_id))
    for _ in range(10):
        turns.add(waiting("narrow", 99))
    taken = drawn(turns, 20)
    assert Counter(item.run.tenant for item in taken) == {"wide": 10, "narrow": 10}
    assert len({item.run.target_id for item in taken if item.run.tenant == "wide"}) == 10


def test_a_host_without_room_is_passed_over() -> None:
    turns = Turns()
    turns.add(waiting("t", 1, "full"))
    turns.add(waiting("t", 2, "free"))
    item = turns.next(anybody, lambda host: host != "full")
    assert item is not None
    assert item.host == "free"
    assert turns.next(anybody, lambda host: host != "full") is None
    assert turns.size == 1


def test_live_runs_go_first_and_background_has_its_turn() -> None:
    turns = Turns()
    for _ in range(40):
        turns.add(waiting("t", background=True))
        turns.add(waiting("t"))
    order = [item.run.background for item in drawn(turns, 2 * BACKGROUND_EVERY)]
    assert order == ([False] * (BACKGROUND_EVERY - 1) + [True]) * 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.booleans(), st.integers(0, 9)), max_size=60))
def test_nothing_is_lost_and_counts_are_right(runs: list[tuple[str, int, bool, int]]) -> None:
    turns = Turns()
    runs.sort(key=lambda run: run[3])
    for tenant, target_id, background, since in runs:
        turns.add(waiting(tenant, target_id, f"h{target_id}", since=since, background=background))
    old = turns.take_back(4)
    assert len(old) == sum(since <= 4 for *_, since in runs)
    assert turns.size == sum(turns.of_tenant.values()) == sum(turns.of_host.values()) == len(runs) - len(old)
    assert len(drawn(turns, 100)) == len(runs) - len(old)
    assert (turns.size, turns.background, turns.of_tenant, turns.of_host) == (0, 0, Counter(), Counter())


def fill(shares: Shares, host: str, now: float, most: int = 10_000) -> list[int]:
    """Begins calls until there is no room; their tokens."""
    tokens: list[int] = []
    while len(tokens) < most and shares.room(host, now) > 0:
        tokens.append(shares.begin(host, now))
    return tokens


def test_a_host_alone_leaves_a_reserve_for_the_first_who_comes() -> None:
    shares = Shares(100)
    assert len(fill(shares, "a", NOW)) == 75
    assert len(fill(shares, "b", NOW)) == 25


def test_two_fast_hosts_share_all_of_it() -> None:
    shares = Shares(100)
    fill(shares, "b", NOW, 1)
    assert len(fill(shares, "a", NOW)) == 50
    assert len(fill(shares, "b", NOW)) == 49


def test_slow_hosts_have_a_quarter_each_and_half_together() -> None:
    shares = Shares(100)
    for host in ("a", "b", "c"):
        token = shares.begin(host, NOW)
        shares.end(host, token, NOW + SLOW_S * 10)
    later = NOW + 20
    assert [len(fill(shares, host, later)) for host in ("a", "b", "c")] == [25, 25, 1]
    assert len(fill(shares, "fast", later)) == 49


def test_a_host_that_begins_to_hang_gets_nothing_more() -> None:
    shares = Shares(100)
    fill(shares, "b", NOW, 1)
    fill(shares, "a", NOW, 30)
    assert shares.room("a", NOW + 0.5) == 20
    assert shares.room("a", NOW + SLOW_S + 0.1) <= 0
    assert shares.room("c", NOW + SLOW_S + 0.1) > 0


def test_a_host_that_is_fast_again_is_trusted_again() -> None:
    pace = Pace()
    pace.end(pace.begin(NOW), NOW + 30)
    calls = 0
    while pace.is_slow(NOW + 30):
        pace.end(pace.begin(NOW + 30), NOW + 30.01)
        calls += 1
    assert 5 < calls < 30


def test_company_is_forgotten_after_a_minute() -> None:
    shares = Shares(100)
    shares.end("b", shares.begin("b", NOW), NOW)
    shares.end("a", shares.begin("a", NOW), NOW)
    assert shares.room("a", NOW + ALONE_S - 1) == 50
    assert shares.room("a", NOW + ALONE_S + 1) == 75


@pytest.mark.parametrize("concurrency", [1, 2, 3])
def test_a_small_runner_calls_every_host(concurrency: int) -> None:
    shares = Shares(concurrency)
    for host in ("a", "b", "a", "c"):
        assert shares.room(host, NOW) >= 1
        shares.end(host, shares.begin(host, NOW), NOW + 50)


async def test_a_hanging_host_keeps_its_share_and_others_go_on(world: World, target: Target) -> None:
    """Three times as many runs hang as there is room for; what does not hang is called at once nevertheless."""
    hanging = world.target(target.url.replace("127.0.0.1", "localhost"))
    fast = world.target(target.url)

    def script(request: Request) -> Reply:
        return Reply(hang="localhost" in request.headers["host"])

    target.script = script
    hung = [world.schedule(hanging) for _ in range(100)]
    quick = [world.schedule(fast, tenant="other") for _ in range(100)]
    async with world.runner(concurrency=32, drain_timeout_s=0.2) as runner:
        world.put([world.fire(quick[0], world.now_s - 5)])
        await world.until({"succeeded": 1})
        world.put(world.fire(schedule, world.now_s - 5) for schedule in hung[:50])
        await wait_until(lambda: runner.totals["deferred"] >= 20, 10, "what hangs to wait in rows")
        stale = runner.totals["stale"]
        world.put(world.fire(schedule, world.now_s - 5) for schedule in hung[50:])
        world.put(world.fire(schedule, world.now_s - 5) for schedule in quick[1:])
        begun = asyncio.get_running_loop().time()
        await wait_until(lambda: world.statuses().get("succeeded") == 100, 10, "all that does not hang")
        assert asyncio.get_running_loop().time() - begun < 3
        await wait_until(lambda: world.statuses().get("deferred", 0) >= 76, 10, "what hangs to wait in rows")
        assert runner.totals["stale"] == stale, "known to hang, it does not wait here first"
        running = world.statuses()["running"]
        assert running <= 16, "half of it: it was fast until it hung"


async def test_a_crowd_of_one_tenant_does_not_hold_up_another(world: World, target: Target, hook: int) -> None:
    """600 runs of one tenant stand in the queue before 20 of another; those are called among the first."""
    target.script = lambda request: Reply(delay_s=0.02)
    crowd = [world.schedule(hook, tenant="crowd") for _ in range(600)]
    small = [world.schedule(hook, tenant="small", name=f"small-{n}") for n in range(20)]
    at = world.now_s - 5
    async with world.runner(concurrency=16):
        world.put([world.fire(small[0], at)])
        await world.until({"succeeded": 1})
        world.put(world.fire(schedule, at) for schedule in crowd)
        world.put(world.fire(schedule, at) for schedule in small[1:])
        await world.until({"succeeded": 620}, 30)
        await world.until_quiet()
    places = [n for n, run in enumerate(target.runs[1:]) if run["tenant"] == "small"]
    assert len(places) == 19
    assert quantiles(places, n=10)[8] < 300, "without turns they came last"
    assert {run["attempt"] for run in world.runs()} == {1}


async def test_a_hanging_batch_target_keeps_nobody_out(world: World, target: Target, hook: int) -> None:
    """Runs enough for twenty times its requests; and what waits of it waits in rows, with its attempt unspent."""
    target.script = lambda request: Reply(hang="/slow" in request.path)
    slow = world.target(target.url + "/slow", batch_max=2)
    hung = [world.schedule(slow) for _ in range(320)]
    more = [world.schedule(slow) for _ in range(40)]
    quick = [world.schedule(hook) for _ in range(50)]
    async with world.runner(concurrency=16, drain_timeout_s=0.2) as runner:
        world.put(world.fire(schedule, world.now_s - 5) for schedule in hung)
        await wait_until(lambda: world.statuses().get("deferred", 0) >= 290, 15, "what hangs to wait in rows")
        stale = runner.totals["stale"]
        world.put(world.fire(schedule, world.now_s - 5) for schedule in [*more, *quick])
        await wait_until(lambda: world.statuses().get("succeeded") == 50, 3, "the others")
        await wait_until(lambda: world.statuses().get("deferred", 0) >= 340, 10, "what hangs to wait in rows")
        assert runner.totals["stale"] == stale, "known to hang, it does not wait here first"
        await wait_until(lambda: runner.admission.open <= 16, 5, "what is in its requests, and nothing more")
        assert {run["attempt"] for run in world.runs(status="deferred")} == {0}
        before, looked = runner.totals["deferred"], runner.waker._looked_at
        await wait_until(lambda: runner.waker._looked_at > looked + 0.5, 5, "some looks")
        assert runner.totals["deferred"] - before <= 2, "rows are not taken and put back in a circle"
