"""The lateness that monitoring shows: of first calls, against due, and of nothing that is late on purpose."""

from uuid import uuid4

import pytest

from bucketd.runner.lateness import Lateness
from bucketd.runner.loop import Runner
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.exposition import Histogram
from tests.runner.conftest import World
from tests.support.target import Target

SLACK_S = 20.0  # a crowded machine; less than any two figures here are apart


def of(runner: Runner, path: str) -> Histogram:
    """The histogram as a scrape would show it."""
    samples = [one for one in runner.meter.read() if one.name == "bucketd_lateness_seconds"]
    [found] = [one.value for one in samples if one.labels == (path,)]
    assert isinstance(found, Histogram)
    return found


def count(histogram: Histogram) -> float:
    return histogram.buckets()[-1][1]


async def test_fires_count_from_due_and_jitter_is_no_lateness(world: World, hook: int) -> None:
    plain, jittered = world.schedule(hook), world.schedule(hook, jitter_s=3600)
    jitter_s = world.value("select jitter_offset_s from bucketd.schedules where id = %s", jittered)
    now = world.now_s
    world.put([world.fire(plain, now - 40), world.fire(jittered, now - 3 - jitter_s)])
    async with world.runner() as runner:
        await world.until({"succeeded": 2})
        fires, rows = of(runner, "fire"), of(runner, "row")
    assert (count(fires), count(rows)) == (2, 0)
    assert 43 <= fires.total <= 43 + 2 * SLACK_S


async def test_a_request_of_a_batch_target_counts_each_of_its_runs(world: World, target: Target) -> None:
    batched = world.target(target.url, batch_max=100)
    at = world.now_s - 30
    world.put([world.fire(world.schedule(batched), at) for _ in range(10)])
    async with world.runner() as runner:
        await world.until({"succeeded": 10})
        fires = of(runner, "fire")
    assert count(fires) == 10
    assert 10 * 30 <= fires.total <= 10 * (30 + SLACK_S)


async def test_rows_count_apart_and_only_their_first_calls(world: World, hook: int) -> None:
    at = world.now_s - 100
    reconciled, had_no_place = {"origin": "settle"}, {"origin": "fire", "reason": "target_busy"}
    jittered = {"origin": "settle", "jitter_offset_s": 60}
    on_purpose = [
        {"origin": "fire", "attempt": 1, "status": "retrying"},
        {"origin": "trigger"},
        {"origin": "backfill", "background": True},
        {"origin": "catch_up", "background": True},
    ]
    for columns in (reconciled, had_no_place, jittered, *on_purpose):
        world.run(world.schedule(hook), at, **columns)  # type: ignore[arg-type]
    async with world.runner() as runner:
        await world.until({"succeeded": 7})
        fires, rows = of(runner, "fire"), of(runner, "row")
    assert (count(fires), count(rows)) == (0, 3)
    assert 100 + 100 + 40 <= rows.total <= 240 + 3 * SLACK_S


def test_what_a_run_waits_for_its_call_is_lateness_too() -> None:
    fresh, woken = Claim(Incarnation(uuid4())), Claim(Incarnation(uuid4()), woken=True)
    run = Run(bytes(16), bytes(8), 1, fresh, "t", 1, None, "id", "{}", False, due_at=1_000.0)
    lateness = Lateness()
    lateness.begun([run, run._replace(due_at=None), run._replace(claim=woken, due_at=990.0), run], 1_003.0)
    assert (count(lateness.of_fires), lateness.of_fires.total) == pytest.approx((2, 6))
    assert (count(lateness.of_rows), lateness.of_rows.total) == pytest.approx((1, 13))
