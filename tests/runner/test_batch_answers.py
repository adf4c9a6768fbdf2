"""What the answer to a batch says of each run: pure, and through a runner."""

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.runner.batch_answer import by_answer
from bucketd.runner.call import READ_BYTES, Answer
from bucketd.runner.run import Claim, Incarnation, Run
from tests.runner.conftest import World
from tests.support.target import Reply, Request, Target

CLAIM = Claim(Incarnation(uuid4()))
RUNS = [Run(b"x" * 16, b"y" * 8, 1, CLAIM, "t", 1, None, f"run-{n}", "{}") for n in range(4)]


def of_each(report: Any, status: int = 200) -> list[Answer]:
    """What an answer with this report means for run-0 .. run-3."""
    content = report if isinstance(report, bytes) else json.dumps(report).encode()
    means = {run.run_id: answer for answer, runs in by_answer(RUNS, Answer(status, report=content)) for run in runs}
    return [means[run.run_id] for run in RUNS]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"status": 200}, Answer(200)),
        ({"status": 202, "error": "what of it"}, Answer(202)),
        ({"status": 503, "error": "busy", "retry_after_s": 30}, Answer(503, "HTTP 503 busy", 30.0)),
        ({"status": 429, "retry_after_s": "30"}, Answer(429, "HTTP 429")),
        ({"status": 404, "error": {"code": 7}}, Answer(404, 'HTTP 404 {"code": 7}')),
        ({"status": 302, "retry_after_s": -1.5}, Answer(302, "HTTP 302", 0.0)),
        ({"error": "no status"}, Answer(None, "no status")),
        ({}, Answer(207)),
        ({"status": None, "error": None}, Answer(207)),
        ({"status": "200"}, Answer(None, 'expected a status from 200 to 599 for this run, got "200"')),
        ({"status": True, "error": "e"}, Answer(None, "expected a status from 200 to 599 for this run, got true e")),
        ({"status": 0}, Answer(None, "expected a status from 200 to 599 for this run, got 0")),
        ({"status": 100}, Answer(None, "expected a status from 200 to 599 for this run, got 100")),
        ({"status": 500, "retry_after_s": 10**400}, Answer(500, "HTTP 500")),
        ({"status": 500, "retry_after_s": float("inf")}, Answer(500, "HTTP 500")),
    ],
    ids=str,
)
def test_a_named_run_has_its_own_answer(entry: dict[str, Any], expected: Answer) -> None:
    others = Answer(207)
    found = of_each({"runs": [{"run_id": "run-1", **entry}, {"run_id": "stranger", "status": 500}]}, 207)
    assert found == [others, expected, others, others]


def test_of_several_entries_the_last_counts_and_nonsense_is_passed_over() -> None:
    entries = [
        {"run_id": "run-0", "status": 500},
        5,
        None,
        {"status": 500},
        {"run_id": 7},
        {"run_id": "run-0", "status": 201},
    ]
    assert of_each({"runs": entries}) == [Answer(201), Answer(200), Answer(200), Answer(200)]


@pytest.mark.parametrize(
    "report",
    [b"", b"OK", b"{", b"[]", b"{}", b'{"runs": {}}', b'"runs"', b"\xff", b"[" * 60_000, b'{"runs": "x"}'],
    ids=repr,
)
def test_what_is_no_report_leaves_the_requests_own_status(report: bytes) -> None:
    assert {answer.status for answer in of_each(report)} == {200}
    assert set(of_each(report, 207)) == {Answer(None, "HTTP 207 without a status per run")}


def test_a_failed_request_fails_all() -> None:
    answer = Answer(503, "HTTP 503", 5.0)
    assert list(by_answer(RUNS, answer)) == [(answer, RUNS)]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
    max_leaves=6,
)
_ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "run_id": st.sampled_from(["run-0", "run-1", "run-2", "other"]) | _VALUES,
        "status": st.integers(190, 610) | _VALUES,
        "error": st.text() | _VALUES,
        "retry_after_s": st.floats() | st.integers() | _VALUES,
    },
)


@settings(deadline=None)
@given(
    report=st.binary()
    | _VALUES.map(lambda value: json.dumps(value).encode())
    | st.lists(_ENTRIES | _VALUES, max_size=6).map(lambda entries: json.dumps({"runs": entries}).encode()),
    status=st.sampled_from([200, 202, 207]),
)
def test_each_run_gets_one_answer_whatever_came(report: bytes, status: int) -> None:
    groups = list(by_answer(RUNS, Answer(status, report=report)))
    assert sorted(run.run_id for _, runs in groups for run in runs) == [run.run_id for run in RUNS]
    for answer, _ in groups:
        assert answer.status is None or 200 <= answer.status <= 599
        assert answer.error or (answer.status is not None and answer.status < 300)
        assert answer.retry_after_s is None or answer.retry_after_s >= 0


def reports(request: Request) -> Reply:
    """Fails every other run of a first attempt: a quarter each by 503 and 404."""
    codes = {1: 503, 3: 404}
    entries = [
        {"run_id": run["run_id"], "status": codes[run["payload"] % 4], "error": "no"}
        for run in request.runs
        if run["payload"] % 4 in codes and run["attempt"] == 1
    ]
    return Reply(207, {"runs": entries})


async def test_a_partial_failure_retries_only_what_failed(world: World, target: Target) -> None:
    hook = world.target(target.url, batch_max=100, batch_linger_ms=100)
    target.script = reports
    at = world.now_s - 5
    world.put(world.fire(world.schedule(hook, payload=str(n)), at) for n in range(40))
    async with world.runner() as runner:
        await world.until({"succeeded": 30, "dead": 10})
        await world.until_quiet()
        assert runner.totals["fenced"] == 0
    called: dict[int, list[int]] = {}
    for run in target.runs:
        called.setdefault(run["payload"], []).append(run["attempt"])
    assert called == {n: [1, 2] if n % 4 == 1 else [1] for n in range(40)}
    rows = world.sql("select r.*, s.payload from bucketd.runs r join bucketd.schedules s on s.id = r.schedule_id")
    for row in rows:
        failures = [(failure["status"], failure["error"]) for failure in row["failures"] or []]
        expected = {1: (207, [(503, "HTTP 503 no")], None), 3: (404, [(404, "HTTP 404 no")], "rejected")}
        assert (row["http_status"], failures, row["reason"]) == expected.get(row["payload"] % 4, (207, [], None))


SILENT = {
    "plain": (Reply(200, raw=b"OK", content_type="text/plain"), "succeeded"),
    "broken": (Reply(200, raw=b"{broken"), "succeeded"),
    "long": (Reply(200, raw=b'{"runs": [' + b" " * 200_000 + b"]}"), "succeeded"),
    "plain-207": (Reply(207, raw=b"OK", content_type="text/plain"), "retrying"),
    "long-207": (Reply(207, raw=b'{"runs": [' + b" " * 200_000 + b"]}"), "retrying"),
}


async def test_an_answer_that_says_nothing_of_runs(world: World, target: Target) -> None:
    target.script = lambda request: SILENT[request.path.removeprefix("/")][0]
    policy = {"batch_max": 3, "batch_linger_ms": 20, "retry_base_s": 10_000, "retry_cap_s": 10_000}
    hooks = {name: world.target(target.url.replace("hook", name), **policy) for name in SILENT}
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for hook in hooks.values() for _ in range(3))
    async with world.runner():
        await world.until({"succeeded": 9, "retrying": 6})
        await world.until_quiet()
    for name, (_, status) in SILENT.items():
        assert {run["status"] for run in world.runs(target_id=hooks[name])} == {status}, name


async def test_a_long_report_is_read_to_its_end(world: World, target: Target) -> None:
    """More than the 64 KiB that any answer may have: 300 runs with an error text of 200 characters each."""
    hook = world.target(target.url, batch_max=300, batch_linger_ms=300)
    sizes: list[int] = []

    def fails(request: Request) -> Reply:
        entries = [{"run_id": run["run_id"], "status": 400, "error": "e" * 200} for run in request.runs]
        sizes.append(len(json.dumps(entries)))
        return Reply(200, {"runs": entries})

    target.script = fails
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(300))
    async with world.runner():
        await world.until({"dead": 300}, 20)
    assert max(sizes) > READ_BYTES


async def test_a_request_carries_runs_of_one_tenant_if_the_target_wants_it(world: World, target: Target) -> None:
    apart = world.target(target.url, batch_max=50, batch_linger_ms=100, batch_by_tenant=True)
    mixed = world.target(target.url.replace("/hook", "/mixed"), batch_max=50, batch_linger_ms=100)
    at = world.now_s - 5
    for hook in (apart, mixed):
        world.put(world.fire(world.schedule(hook, tenant=f"tenant-{n % 3}"), at) for n in range(30))
    async with world.runner():
        await world.until({"succeeded": 60})
        await world.until_quiet()
    by_path: dict[str, list[set[str]]] = {}
    for request in target.requests:
        by_path.setdefault(request.path, []).append({run["tenant"] for run in request.runs})
    assert sorted(len(tenants) for tenants in by_path["/hook"]) == [1, 1, 1]
    assert {"tenant-0", "tenant-1", "tenant-2"} in by_path["/mixed"]
