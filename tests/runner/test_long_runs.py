"""Long runs from the 202 to their end: through a real runner, target and application."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bucketd.api import App
from bucketd.client import AsyncClient
from bucketd.explain.answer import Verdict
from bucketd.store.statements import statements
from tests.runner.conftest import World
from tests.runner.test_results import proxy, through
from tests.support.asgi import AsgiClient, Response
from tests.support.proxy import Proxy
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until

__all__ = ["proxy"]  # a fixture
WITHIN_S = 600


@pytest.fixture
def accepting(world: World, target: Target) -> int:
    """A target that accepts everything, and is to report."""
    target.script = lambda request: Reply(202)
    return world.target(target.url, complete_within_s=WITHIN_S, max_attempts=2)


@pytest_asyncio.fixture
async def api(world: World) -> AsyncIterator[AsgiClient]:
    """The application that reports go to."""
    app = App(world.settings)
    await app.open()
    yield AsgiClient(app)
    await app.close()


async def report(api: AsgiClient, kind: str, call: dict[str, Any], **members: Any) -> Response:
    """What a target says of a run, from what it was sent."""
    return await api.post(f"/runs/{call['run_id']}/{kind}", {"attempt": call["attempt"], **members})


async def until_accepted(world: World, runs: int = 1) -> None:
    """Until the runs have their deadline."""

    def accepted() -> bool:
        count: int = world.value("select count(*)::int from bucketd.runs where claim is null and wake_at is not null")
        return count == runs

    await wait_until(accepted, 10, f"{runs} accepted runs: {world.runs()}")


def due_in_s(world: World) -> float:
    """When the one run wakes."""
    return float(world.value("select extract(epoch from wake_at - bucketd.bucketd_now())::float8 from bucketd.runs"))


async def test_an_accepted_run_waits_for_its_completion(
    world: World, target: Target, accepting: int, api: AsgiClient
) -> None:
    world.put([world.fire(world.schedule(accepting), world.now_s - 5)])
    async with world.runner() as runner:
        (call,) = await target.wait_runs(1, 10)
        await until_accepted(world)
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == len(runner.book) == 0, 5, "empty accounts")
        await wait_until(lambda: runner.totals["accepted"] == 1, 5, "the count")
        (run,) = world.runs()
        assert (run["status"], run["attempt"], run["http_status"], run["finished_at"]) == ("running", 1, 202, None)
        assert WITHIN_S - 20 < due_in_s(world) <= WITHIN_S
        assert (await report(api, "complete", call)).status == 200
        assert world.statuses() == {"succeeded": 1}
    assert len(target.requests) == 1


async def test_without_a_promise_a_202_is_a_success(world: World, target: Target, hook: int) -> None:
    target.script = lambda request: Reply(202)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    assert [run["http_status"] for run in world.runs()] == [202]


async def test_in_a_batch_each_run_is_accepted_for_itself(world: World, target: Target) -> None:
    hook = world.target(target.url, batch_max=9, batch_linger_ms=100, complete_within_s=WITHIN_S)
    target.script = lambda request: Reply(
        207, {"runs": [{"run_id": run["run_id"], "status": 200 + run["payload"] % 3} for run in request.runs]}
    )
    at = world.now_s - 5
    world.put(world.fire(world.schedule(hook, payload=str(n)), at) for n in range(9))
    async with world.runner():
        await world.until({"running": 3, "succeeded": 6})
        await until_accepted(world, 3)
        await world.until_quiet()
        target.script = lambda request: Reply(202)
        world.put(world.fire(world.schedule(hook), at) for _ in range(9))
        await until_accepted(world, 12)
        await world.until_quiet()


@pytest.mark.parametrize(("members", "status"), [({}, "succeeded"), ({"error": "x", "retry": False}, "dead")], ids=str)
async def test_a_report_may_overtake_the_answer(
    members: dict[str, Any], status: str, world: World, target: Target, accepting: int, api: AsgiClient
) -> None:
    target.script = lambda request: Reply(202, delay_s=0.5)
    world.put([world.fire(world.schedule(accepting), world.now_s - 5)])
    async with world.runner() as runner:
        (call,) = await target.wait_runs(1, 10)
        assert (await report(api, "heartbeat", call)).status == 200
        assert (await report(api, "complete", call, **members)).status == 200
        before = world.runs()
        await wait_until(lambda: runner.totals["fenced"], 10, "the answer that counts no more")
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == len(runner.book) == 0, 5, "empty accounts")
    assert world.runs() == before
    assert world.statuses() == {status: 1}


async def test_a_passed_deadline_is_a_failed_attempt(
    world: World, target: Target, accepting: int, api: AsgiClient
) -> None:
    schedule = world.schedule(accepting, payload='"p"')
    world.put([world.fire(schedule, world.now_s - 5)])
    async with world.runner():
        (first,) = await target.wait_runs(1, 10)
        await until_accepted(world)
    world.shift_clock(f"{WITHIN_S - 20} s")
    assert (await report(api, "heartbeat", first)).status == 200
    world.shift_clock(f"{WITHIN_S + 20} s")
    async with world.runner():  # a heartbeat has moved the first deadline: nothing is due
        world.put([world.fire(world.schedule(world.target(target.url)), world.now_s - 5)])
        await world.until({"running": 1, "succeeded": 1})
    assert len(target.requests) == 2
    world.shift_clock(f"{2 * WITHIN_S} s")
    async with world.runner():
        calls = await target.wait_runs(3, 10)
        await until_accepted(world)
        assert (calls[2]["run_id"], calls[2]["attempt"]) == (first["run_id"], 2)
        (run,) = world.runs(schedule_id=schedule)
        said = [(failure["attempt"], failure["status"], failure["error"]) for failure in run["failures"]]
        assert said == [(1, 202, f"no completion within {WITHIN_S} s")]
        stale = await report(api, "complete", first)
        assert (stale.status, stale.json["expected_attempt"]) == (409, 2)
        world.sql("update bucketd.runs set wake_at = bucketd.bucketd_now() where status = 'running'")
        await world.until({"dead": 1, "succeeded": 1})
    assert [failure["attempt"] for failure in world.runs(schedule_id=schedule)[0]["failures"]] == [1, 2]
    letters = world.sql("select reason, attempts, payload from bucketd.dead_letters")
    assert letters == [{"reason": "attempts", "attempts": 2, "payload": "p"}]
    assert (await report(api, "complete", calls[2])).json["run_status"] == "dead"


async def test_a_reported_failure_is_tried_again(world: World, target: Target, accepting: int, api: AsgiClient) -> None:
    world.put([world.fire(world.schedule(accepting), world.now_s - 5)])
    async with world.runner():
        (first,) = await target.wait_runs(1, 10)
        assert (await report(api, "complete", first, error="disk full")).status == 200
        *_, second = await target.wait_runs(2, 10)
        assert (second["run_id"], second["attempt"]) == (first["run_id"], 2)
        assert (await report(api, "complete", first, error="disk full")).status == 200  # sent twice
        assert (await report(api, "complete", second)).status == 200
        await world.until({"succeeded": 1})
        await world.until_quiet()
    assert [failure["error"] for failure in world.runs()[0]["failures"]] == ["disk full"]


@pytest.mark.parametrize("change", ["claim = 12345", "claim = null, status = 'cancelled', finished_at = now()"])
async def test_a_202_about_somebody_elses_run_is_discarded(
    change: str, world: World, target: Target, accepting: int
) -> None:
    target.script = lambda request: Reply(202, delay_s=0.5)
    world.put([world.fire(world.schedule(accepting), world.now_s - 5)])
    async with world.runner() as runner:
        await target.wait_runs(1, 10)
        world.sql(f"update bucketd.runs set {change}")
        before = world.runs()
        await wait_until(lambda: runner.totals["fenced"], 10, "the discarded outcome")
        assert world.runs() == before
        assert world.sql("select 1 from bucketd.claims") == []


async def test_a_lost_reply_is_sent_again(world: World, target: Target, accepting: int, proxy: Proxy) -> None:
    async with world.runner(**through(proxy)) as runner:
        lost = proxy.lose_reply_after(b"http_status = 202")
        world.put(world.fire(world.schedule(accepting), world.now_s - 5) for _ in range(20))
        await asyncio.wait_for(lost.wait(), 10)
        await until_accepted(world, 20)
        await world.until_quiet()
        await wait_until(lambda: runner.admission.open == len(runner.book) == 0, 5, "empty accounts")
    assert len(target.runs) == 20


async def test_what_people_see_and_what_a_deletion_does(
    world: World, target: Target, accepting: int, api: AsgiClient
) -> None:
    world.put([world.fire(world.schedule(accepting, name="long"), world.now_s - 5)])
    async with world.runner():
        (call,) = await target.wait_runs(1, 10)
        await until_accepted(world)
    (before,) = world.runs()
    world.shift_clock("9 minutes")
    world.sql("update bucketd.runs set started_at = started_at - interval '1 hour'")
    assert world.sql(statements("reap")["orphans"] % {"older_than_s": 600}) == []
    assert world.runs()[0]["wake_at"] == before["wake_at"]
    by = f"{before['wake_at']:%Y-%m-%dT%H:%M:%S}"
    async with AsyncClient(settings=world.settings) as client:
        answer = await client.schedules.why("long", before["scheduled_at"])
        assert answer.verdict is Verdict.RUNNING
        assert answer.text.endswith("its target accepted it and is to report the end.")
        assert [fact for fact in answer.facts if fact.startswith(f"the end is expected by {by}")]
        world.shift_clock("11 minutes")
        late = await client.schedules.why("long", before["scheduled_at"])
        assert [fact for fact in late.facts if fact.startswith(f"the end was expected by {by}")]
        await client.schedules.delete("long")
    assert world.statuses() == {"cancelled": 1}
    refused = await report(api, "complete", call)
    assert (refused.status, refused.json["run_status"]) == (409, "cancelled")
