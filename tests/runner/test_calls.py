"""Fires put into the queue arrive at the target, as the documented request."""

import json
import time

from bucketd.store.clock import utc
from bucketd.store.model import run_id
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target
from tests.support.waiting import wait_until


async def test_a_fire_is_called_once_and_succeeds(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook, name='a "quoted" näme', tenant="acme", payload='{"a":  [1, 2]}')
    at = world.now_s - 5
    world.put([world.fire(schedule, at, before_s=60, after_s=120)])
    async with world.runner():
        await world.until({"succeeded": 1})
        await world.until_quiet()
    (request,) = target.requests
    expected_id = run_id(schedule, utc(at))
    assert request.method == "POST"
    assert request.body == {
        "run_id": expected_id,
        "schedule": 'a "quoted" näme',
        "tenant": "acme",
        "scheduled_at": f"{utc(at):%Y-%m-%dT%H:%M:%SZ}",
        "previous_at": f"{utc(at - 60):%Y-%m-%dT%H:%M:%SZ}",
        "next_at": f"{utc(at + 120):%Y-%m-%dT%H:%M:%SZ}",
        "attempt": 1,
        "payload": {"a": [1, 2]},
    }
    assert b'"payload":{"a":  [1, 2]}' in request.raw  # spliced in as stored
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == headers["idempotency-key"] == expected_id
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    assert headers["bucketd-attempt"] == "1"
    assert headers["user-agent"].startswith("bucketd/")
    assert "cookie" not in headers
    (run,) = world.runs()
    assert (run["claim"], run["wake_at"], run["http_status"]) == (None, None, 200)
    assert run["finished_at"] is not None
    assert world.pending() == 0


async def test_an_occurrence_without_neighbours_says_null(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    world.put([world.fire(schedule, world.now_s - 5, before_s=0, after_s=0)])
    async with world.runner():
        (run,) = await target.wait_runs(1, 10)
    assert (run["previous_at"], run["next_at"], run["payload"]) == (None, None, None)


async def test_own_headers_are_sent_and_cannot_replace_ours(world: World, target: Target) -> None:
    hook = world.target(target.url, headers={"X-Token": "t", "Webhook-Id": "forged"})
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await target.wait_runs(1, 10)
    (request,) = target.requests
    assert request.headers["X-Token"] == "t"
    assert request.headers["webhook-id"] == request.body["run_id"]


async def test_a_batch_target_gets_many_runs_a_request(world: World, target: Target) -> None:
    hook = world.target(target.url, batch_max=40, batch_linger_ms=50)
    at = world.now_s - 5
    world.put(world.fire(world.schedule(hook, payload=str(n)), at) for n in range(100))
    async with world.runner():
        await world.until({"succeeded": 100})
        await world.until_quiet()
    sizes = sorted(len(request.body) for request in target.requests)
    assert sum(sizes) == 100
    assert sizes[-1] <= 40
    assert len(sizes) <= 5
    assert {int(request.headers["bucketd-batch"]) for request in target.requests} == set(sizes)
    assert all(request.headers["webhook-id"].startswith("batch_") for request in target.requests)
    assert sorted(run["payload"] for run in target.runs) == list(range(100))
    assert len({run["run_id"] for run in target.runs}) == 100


async def test_a_small_batch_goes_after_the_linger_time(world: World, target: Target) -> None:
    hook = world.target(target.url, batch_max=1000, batch_linger_ms=200)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
    (request,) = target.requests
    assert len(request.body) == 1


async def test_a_failed_batch_fails_each_of_its_runs(world: World, target: Target) -> None:
    hook = world.target(target.url, batch_max=10, batch_linger_ms=20, max_attempts=2)
    target.replies.append(Reply(503))
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(3))
    async with world.runner():
        await world.until({"succeeded": 3})
    assert [run["attempt"] for run in world.runs()] == [2, 2, 2]
    assert [run["failures"][0]["status"] for run in world.runs()] == [503] * 3


async def test_retries_until_it_succeeds(world: World, target: Target, hook: int) -> None:
    target.replies += [Reply(500, body="oops\x00"), Reply(reset=True), Reply(429)]
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"succeeded": 1})
        await world.until_quiet()
    (run,) = world.runs()
    assert run["attempt"] == 4
    assert [failure["attempt"] for failure in run["failures"]] == [1, 2, 3]
    assert [failure["status"] for failure in run["failures"]] == [500, None, 429]
    assert "oops" in run["failures"][0]["error"]
    assert [body["attempt"] for body in target.runs] == [1, 2, 3, 4]
    assert len({body["run_id"] for body in target.runs}) == 1


async def test_the_drawn_delay_is_in_the_row(world: World, target: Target) -> None:
    hook = world.target(target.url, retry_base_s=1000, retry_cap_s=500)
    target.script = lambda request: Reply(500)
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(8))
    async with world.runner():
        await world.until({"retrying": 8})
    delays = [
        row["d"]
        for row in world.sql("select extract(epoch from wake_at - bucketd.bucketd_now())::float8 d from bucketd.runs")
    ]
    assert all(-30 < delay <= 500 for delay in delays)
    assert max(delays) - min(delays) > 10  # jitter: eight draws from 500 s within 10 s are no draws


async def test_retry_after_is_a_lower_bound(world: World, target: Target) -> None:
    hook = world.target(target.url, retry_base_s=0, retry_cap_s=3600)
    target.script = lambda request: Reply(503, headers={"Retry-After": "900"})
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"retrying": 1})
    assert world.value("select wake_at > bucketd.bucketd_now() + interval '800 s' from bucketd.runs")


async def test_out_of_attempts_is_dead_with_a_letter(world: World, target: Target) -> None:
    hook = world.target(target.url, max_attempts=2)
    target.script = lambda request: Reply(500)
    schedule = world.schedule(hook, name="doomed", tenant="acme", payload='{"k": 1}')
    world.put([world.fire(schedule, world.now_s - 5)])
    async with world.runner():
        await world.until({"dead": 1})
        await world.until_quiet()
    (run,) = world.runs()
    assert (run["attempt"], run["reason"], run["wake_at"], run["claim"]) == (2, "attempts", None, None)
    (letter,) = world.sql("select * from bucketd.dead_letters")
    assert (letter["schedule_id"], letter["name"], letter["tenant"]) == (schedule, "doomed", "acme")
    assert (letter["payload"], letter["reason"], letter["attempts"]) == ({"k": 1}, "attempts", 2)
    assert [failure["attempt"] for failure in letter["failures"]] == [1, 2]


async def test_what_no_retry_heals_is_dead_at_once(world: World, target: Target, hook: int) -> None:
    answers = {"/404": Reply(404), "/302": Reply(302, headers={"Location": target.url}), "/400": Reply(400)}
    target.script = lambda request: answers.get(request.path, Reply())
    base = target.url.removesuffix("/hook")
    for path in answers:
        world.put([world.fire(world.schedule(world.target(base + path)), world.now_s - 5)])
    async with world.runner():
        await world.until({"dead": 3})
    assert {run["reason"] for run in world.runs()} == {"rejected"}
    assert sorted(request.path for request in target.requests) == sorted(answers)  # no redirect was followed
    assert world.value("select count(*) from bucketd.dead_letters") == 3


async def test_a_header_that_cannot_be_sent_is_rejected(world: World, target: Target) -> None:
    hook = world.target(target.url, headers={"x-bad": "a\r\nInjected: b"})
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"dead": 1})
    assert target.requests == []
    assert world.runs()[0]["reason"] == "rejected"


async def test_nobody_listens_is_retried(world: World) -> None:
    hook = world.target("http://127.0.0.1:1/", retry_base_s=1000, retry_cap_s=1000)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner():
        await world.until({"retrying": 1})
    assert world.runs()[0]["http_status"] is None
    assert "Connect" in world.runs()[0]["failures"][0]["error"]


async def test_a_hanging_target_times_out(world: World, target: Target) -> None:
    hook = world.target(target.url, timeout_s=0.3, retry_base_s=1000, retry_cap_s=1000)
    target.script = lambda request: Reply(hang=True)
    world.put([world.fire(world.schedule(hook), world.now_s - 5)])
    async with world.runner() as runner:
        await world.until({"retrying": 1})
        assert runner.lanes.in_flight == 0
    await wait_until(lambda: target.in_flight == 0, 5, "the cut of the hanging call's connection")


async def test_the_schedules_own_time_out_wins(world: World, target: Target) -> None:
    hook = world.target(target.url, timeout_s=60, retry_base_s=1000, retry_cap_s=1000)
    target.script = lambda request: Reply(hang=True)
    world.put([world.fire(world.schedule(hook, timeout_s=1), world.now_s - 5)])
    async with world.runner():
        await world.until({"retrying": 1}, timeout_s=5)


async def test_cookies_are_not_kept(world: World, target: Target, hook: int) -> None:
    target.script = lambda request: Reply(headers={"Set-Cookie": "session=1; Path=/"})
    schedule = world.schedule(hook)
    async with world.runner():
        for n in range(2):
            world.put([world.fire(schedule, world.now_s - 5 + n)])
            await target.wait_runs(n + 1, 10)
    assert all("Cookie" not in request.headers for request in target.requests)


async def test_a_longer_answer_than_the_bound_still_counts(world: World, target: Target, hook: int) -> None:
    target.script = lambda request: Reply(body="x" * 1_000_000)
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(3))
    async with world.runner():
        await world.until({"succeeded": 3})


async def test_an_edited_target_is_called_at_its_new_url(world: World, target: Target, hook: int) -> None:
    schedule = world.schedule(hook)
    async with world.runner():
        world.put([world.fire(schedule, world.now_s - 5)])
        await target.wait_runs(1, 10)
        world.sql("update bucketd.targets set url = url || '/moved'")
        world.put([world.fire(schedule, world.now_s - 4)])
        await target.wait_runs(2, 10)
    assert [request.path for request in target.requests] == ["/hook", "/hook/moved"]


async def test_concurrency_bounds_calls_in_flight(world: World, target: Target, hook: int) -> None:
    target.script = lambda request: Reply(delay_s=0.02)
    other = world.target(target.url.replace("127.0.0.1", "localhost"))  # one host alone leaves a reserve to others
    world.put(world.fire(world.schedule((hook, other)[n % 2]), world.now_s - 5) for n in range(60))
    async with world.runner(concurrency=4):
        await world.until({"succeeded": 60})
    assert target.most_in_flight == 4


async def test_each_call_carries_its_own_schedule(world: World, target: Target, hook: int) -> None:
    """I11: of many targets and payloads, batch and single, each arrives where it belongs."""
    base = target.url.removesuffix("/hook")
    kinds = [{"batch_max": 1}, {"batch_max": 7, "batch_linger_ms": 10}]
    hooks = {f"/t{n}": world.target(f"{base}/t{n}", **kinds[n % 2]) for n in range(6)}
    at = world.now_s - 5
    for path, hook_id in hooks.items():
        world.put(world.fire(world.schedule(hook_id, payload=json.dumps(path)), at) for _ in range(20))
    async with world.runner():
        await world.until({"succeeded": 120})

    def own(request: Request) -> bool:
        return all(run["payload"] == request.path for run in request.runs)

    assert all(own(request) for request in target.requests)
    assert len(target.runs) == 120
