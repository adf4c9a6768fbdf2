"""Outcomes: fenced ones are discarded, lost replies are resolved, claims go with their last run."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bucketd.store.claims import sweep_lost
from bucketd.store.config import Settings
from bucketd.store.connect import make_pool
from tests.runner.conftest import World
from tests.support.proxy import Proxy
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[Proxy]:
    """Before this test's Postgres."""
    async with Proxy(dsn) as made:
        yield made


def through(proxy: Proxy) -> dict[str, Any]:
    """Settings that lead the runner through the proxy."""
    return {"dsn": Settings.load({}, dsn=proxy.url).dsn}


@pytest.mark.parametrize(
    "change",
    [
        "attempt = 2",
        "claim = 12345",
        "claim = null, status = 'cancelled', finished_at = bucketd.bucketd_now()",
        "claim = null, status = 'retrying', wake_at = '2100-01-01'",
    ],
)
@pytest.mark.parametrize("reply", [Reply(200, delay_s=0.5), Reply(500, delay_s=0.5), Reply(400, delay_s=0.5)])
async def test_an_outcome_of_somebody_elses_run_is_discarded(
    reply: Reply, change: str, world: World, target: Target, hook: int
) -> None:
    target.replies.append(reply)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner() as runner:
        await target.wait_runs(1, 10)
        world.sql(f"update bucketd.runs set {change}")
        (before,) = world.runs()
        await wait_until(lambda: runner.totals["fenced"], 10, "the discarded outcome")
        assert world.runs() == [before]
        assert world.sql("select 1 from bucketd.claims") == []
        assert world.sql("select 1 from bucketd.dead_letters") == []
        await wait_until(lambda: len(runner.book) == runner.admission.open == 0, 5, "empty accounts")


@pytest.mark.parametrize(
    ("status", "marker", "end"),
    [
        (200, b"set status = 'succeeded'", "succeeded"),
        (500, b"'dead' else 'retrying'", "retrying"),
        (400, b"'dead' else 'retrying'", "dead"),
    ],
)
async def test_a_lost_result_reply_is_sent_again(
    status: int, marker: bytes, end: str, world: World, target: Target, proxy: Proxy
) -> None:
    hook = world.target(target.url, retry_base_s=10_000, retry_cap_s=10_000)
    target.script = lambda request: Reply(status)
    async with world.runner(**through(proxy)) as runner:
        lost = proxy.lose_reply_after(marker)
        world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(20))
        await asyncio.wait_for(lost.wait(), 10)
        await world.until({end: 20})
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == 0, 5, "the end of the accounts")
        await wait_until(lambda: len(runner.book) == 0, 5, "an empty book")
    assert len(target.runs) == 20
    assert all(run["attempt"] == 1 for run in world.runs())
    assert [len(run["failures"] or []) for run in world.runs()] == [0 if status == 200 else 1] * 20


async def test_postgres_away_while_calls_finish(world: World, target: Target, hook: int, proxy: Proxy) -> None:
    target.script = lambda request: Reply(delay_s=0.3)
    async with world.runner(**through(proxy)):
        world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(20))
        await target.wait_runs(20, 10)
        proxy.refuse()
        proxy.cut_now()
        await wait_until(lambda: target.in_flight == 0, 5, "the answers")
        proxy.refuse(False)
        await world.until({"succeeded": 20})
        await world.until_quiet()
    assert len(target.runs) == 20


async def test_the_claim_stays_until_its_last_run(world: World, target: Target, hook: int) -> None:
    slow = world.target(target.url.replace("/hook", "/slow"))
    target.script = lambda request: Reply(delay_s=1.0 if request.path == "/slow" else 0.0)
    at = world.now_s - 5
    world.put([world.fire(world.schedule(slow), at)] + [world.fire(world.schedule(hook), at) for _ in range(5)])
    async with world.runner():
        await world.until({"succeeded": 5, "running": 1})
        assert len(world.sql("select 1 from bucketd.claims")) == 1
        await world.until({"succeeded": 6})
        await world.until_quiet()


@pytest.mark.parametrize("called", [False, True])
async def test_the_sweep_frees_what_nobody_knows(called: bool, world: World, hook: int) -> None:
    """A claim whose reply was lost for good: its rows go back with their attempt number; known claims stay. If Postgres has lost results,
    they may have been called: then the number is used."""
    schedule, at = world.schedule(hook), world.now_s - 5
    async with make_pool(world.settings, application="test", size=1) as pool, pool.connection() as connection:
        runner = world.value(
            "insert into bucketd.runners values (gen_random_uuid(), 'h', 1, 1, now(), now(), null) returning runner_id"
        )
        for claim, age in ((1, 60), (2, 60), (3, 0)):
            world.run(schedule, at - claim, "running", claim=claim, attempt=2, wake_at=None)
            world.sql(
                "insert into bucketd.claims values (%s, %s, array[to_timestamp(%s)], now() - make_interval(secs => %s))",
                claim,
                runner,
                at - claim,
                age,
            )
        assert await sweep_lost(connection, runner, [2], older_than_s=20, called=called) == (1, 1)
    assert [(run["claim"], run["status"], run["attempt"]) for run in world.runs()] == [
        (3, "running", 2),
        (2, "running", 2),
        (None, "retrying", 1 + called),
    ]
    assert [row["claim"] for row in world.sql("select claim from bucketd.claims order by 1")] == [2, 3]


async def test_after_load_nothing_is_left(world: World, target: Target, hook: int) -> None:
    """I13."""
    batch = world.target(target.url, batch_max=50, batch_linger_ms=5)
    at = world.now_s - 5
    async with world.runner() as runner:
        world.put([world.fire(world.schedule(hook), at)])
        await world.until({"succeeded": 1})
        await world.until_quiet()
        tasks = len(asyncio.all_tasks())
        for _ in range(5):
            world.put(world.fire(world.schedule(hook), at) for _ in range(20))
            world.put(world.fire(world.schedule(batch), at) for _ in range(100))
        await world.until({"succeeded": 601}, 20)
        await world.until_quiet()
        await wait_until(lambda: len(asyncio.all_tasks()) <= tasks, 5, "the end of the calls' tasks")
        await wait_until(lambda: set(runner.state().values()) == {0, runner.admission.window}, 5, "empty accounts")
        await wait_until(lambda: len(runner.book) == 0, 5, "an empty book")
        assert world.pending() == 0
