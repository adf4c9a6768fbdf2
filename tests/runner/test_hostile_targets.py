"""Targets that misbehave in every way there is: each run ends as it must, in time, after so many attempts, and leaves nothing behind."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import certifi
import pytest

from bucketd.runner.loop import Runner
from tests.runner.conftest import World
from tests.runner.misbehaviours import CASES, CUT, ENOUGH_S, HEAD_JSON, JSON, LATE, MAX_ATTEMPTS, OK, TIMEOUT_S, Case
from tests.support.certificates import Authority
from tests.support.hostile import Hit, Hostile, Script, Then, deaf_port, http, per_run, well
from tests.support.vitals import descriptors
from tests.support.waiting import wait_until

LONGEST_ERROR = 1_100
KEPT_S = 0.25  # how far a deadline may be missed
SHOWN = ("url", "status", "attempt", "reason", "wake_at", "failures")
ROWS = """
select r.*, t.url, extract(epoch from r.started_at)::float8 as started_s,
    extract(epoch from (r.failures -> -1 ->> 'at')::timestamptz)::float8 as failed_s,
    extract(epoch from r.wake_at)::float8 as wakes_s,
    (select count(*)::int from bucketd.dead_letters l
    where (l.schedule_id, l.scheduled_at) = (r.schedule_id, r.scheduled_at)) as letters
from bucketd.runs r join bucketd.targets t using (target_id) join bucketd.schedules s on s.id = r.schedule_id
order by r.target_id, s.name, r.scheduled_at"""


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    server.start()
    yield server
    server.stop()


def call(world: World, url: str, runs: int = 1, **target: Any) -> None:
    """Fires once at a target of its own, or so often; it has three attempts, right after each other."""
    quick = {"timeout_s": ENOUGH_S, "max_attempts": MAX_ATTEMPTS, "retry_base_s": 0.02, "retry_cap_s": 0.05}
    hook = world.target(url, **{**quick, **target})
    at_s = world.now_s - 5
    world.put(world.fire(world.schedule(hook, name=f"{hook}-{n}", payload=str(n)), at_s) for n in range(runs))


def rows(world: World) -> dict[str, list[dict[str, Any]]]:
    """The runs by the path of their target, by payload; instants of the last failure and the next attempt in epoch seconds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in world.sql(ROWS):
        found.setdefault(row["url"].split("/", 3)[3], []).append(row)
    return found


def complain(name: str, case: Case, row: dict[str, Any], hits: list[Hit]) -> Iterator[str]:
    """What is not as it must be."""
    failed = case.attempts - (case.status == "succeeded")
    failures = row["failures"] or []
    have = row["status"], row["attempt"], row["http_status"]
    if have != (case.status, case.attempts, case.http_status):
        yield f"{name}: expected {case.status} after {case.attempts} with {case.http_status}, got {have}: {failures}"
    if [failure["attempt"] for failure in failures] != list(range(1, failed + 1)):
        yield f"{name}: expected {failed} failures, got {failures}"
    if any(not 0 < len(failure["error"]) <= LONGEST_ERROR for failure in failures):
        yield f"{name}: a failure without words or with too many: {[len(failure['error']) for failure in failures]}"
    if failures and not re.search(case.says, failures[-1]["error"]):
        yield f"{name}: expected {case.says!r}, got {failures[-1]['error'][:200]!r}"
    if [hit.attempt for hit in hits] != list(range(1, case.attempts + 1)) or len({hit.webhook_id for hit in hits}) > 1:
        yield f"{name}: arrived were {[(hit.webhook_id, hit.attempt) for hit in hits]}"
    if row["letters"] != (case.status == "dead") or row["claim"] is not None or row["wake_at"] is not None:
        yield f"{name}: it left something behind, or no letter: {row}"


async def finished(world: World, runs: int) -> None:
    """Until there are so many runs, and all of them have ended."""
    ended = "select count(*) from bucketd.runs where finished_at is not null"
    try:
        await wait_until(lambda: world.value(ended) == runs, 20, f"{runs} runs to end")
    except AssertionError as error:
        late = [row for of_target in rows(world).values() for row in of_target if not row["finished_at"]]
        error.add_note("\n".join(str({key: row[key] for key in SHOWN}) for row in late))
        raise


async def warm(world: World, hostile: Hostile) -> None:
    """One ordinary call: connections to the stores are opened when they are first needed, and stay."""
    call(world, hostile.script("warm", OK))
    await finished(world, 1)
    await world.until_quiet()
    hostile.hang_up()


@asynccontextmanager
async def nothing_left(world: World, hostile: Hostile, runner: Runner) -> AsyncIterator[None]:
    """I13: after the load in the block nothing is under way, and there are no more descriptors and tasks than before it."""
    before, tasks = descriptors(os.getpid()), len(asyncio.all_tasks())

    def gone() -> bool:
        return descriptors(os.getpid()) <= before and len(asyncio.all_tasks()) <= tasks

    def idle() -> bool:  # the window is a bound, not something held
        return not any(count for name, count in runner.state().items() if name != "window")

    yield
    await world.until_quiet()
    assert world.pending() == 0
    await wait_until(idle, 5, "a runner that holds nothing")
    await wait_until(lambda: not hostile.under_way, 5, "the client to have hung up on every script")
    hostile.hang_up()  # on connections that are kept for the next call: what remains is a leak
    await wait_until(gone, 5, f"no more than {before} descriptors and {tasks} tasks")


async def test_every_misbehaviour_has_its_end(world: World, hostile: Hostile) -> None:
    """All at once at one runner."""
    async with world.runner(concurrency=256) as runner:
        await warm(world, hostile)
        async with nothing_left(world, hostile, runner):
            for name, case in CASES.items():
                call(world, hostile.script(name, *case.scripts), timeout_s=case.timeout_s)
            await finished(world, len(CASES) + 1)
    found = rows(world)
    wrong = [text for name, case in CASES.items() for text in complain(name, case, found[name][0], hostile.at(name))]
    assert not wrong, "\n".join(wrong)


async def test_who_cannot_be_connected_to(
    world: World, hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS that proves nothing, or is none, and a port that answers no SYN: tried again, and not one request is let out."""
    known, stranger = Authority(tmp_path), Authority(tmp_path)
    trusted = tmp_path / "public.pem"
    trusted.write_text(known.pem)
    monkeypatch.setattr(certifi, "where", lambda: str(trusted))  # the public authorities of this machine, as it were
    ports = {
        "right": hostile.listen(known.server("localhost")),
        "wrong-name": hostile.listen(known.server("localhost.example")),
        "unknown-authority": hostile.listen(stranger.server("localhost")),
        "no-tls": hostile.port,  # waits for the end of a request for ever
    }
    says = {
        "wrong-name": "certificate verify failed.*[Hh]ostname mismatch",
        "unknown-authority": "certificate verify failed.*unable to get local issuer",
        "no-tls": LATE,
        "plain-to-tls": CUT,
        "deaf": "ConnectionTimeout|[Cc]onnection timeout|[Tt]imed? ?out",
    }
    with deaf_port() as deaf:
        async with world.runner() as runner:
            await warm(world, hostile)
            async with nothing_left(world, hostile, runner):
                for name, port in ports.items():
                    hostile.script(name, OK)
                    timeout_s = TIMEOUT_S if says.get(name) == LATE else ENOUGH_S
                    call(world, f"https://localhost:{port}/{name}", timeout_s=timeout_s)
                call(world, f"http://localhost:{ports['right']}/plain-to-tls")
                call(world, f"http://127.0.0.1:{deaf}/deaf", connect_timeout_s=TIMEOUT_S)
                await finished(world, len(says) + 2)
    assert [hit.path for hit in hostile.hits] == ["warm", "right"]
    for name, pattern in says.items():
        (row,) = rows(world)[name]
        assert (name, row["status"], row["attempt"], row["reason"]) == (name, "dead", MAX_ATTEMPTS, "attempts")
        assert {failure["status"] for failure in row["failures"]} == {None}
        assert all(re.search(pattern, failure["error"]) for failure in row["failures"]), (name, row["failures"])


def of_payload(answers: Mapping[int, Mapping[str, Any]]) -> Script:
    """A 207 with these entries by payload; of the other runs nothing is said."""
    return per_run(207, lambda run: answers.get(run["payload"], {}))


BATCHES: Mapping[str, tuple[tuple[Script, ...], list[tuple[str, int]], list[int]]] = {
    # scripts; (status, attempts) of the runs 0..3 at the end; runs of each request
    "b-partial": (
        (
            of_payload({0: {"status": 200}, 1: {"status": 503, "retry_after_s": 1e9}, 2: {"status": 404}}),
            of_payload({}),
        ),
        [("succeeded", 1), ("succeeded", 2), ("dead", 1), ("succeeded", 1)],
        [4, 1],
    ),
    "b-never-done": (
        (of_payload({1: {"status": 500}, 3: {"error": "no"}}),),
        [("succeeded", 1), ("dead", 3), ("succeeded", 1), ("dead", 3)],
        [4, 2, 2],
    ),
    "b-of-others": (
        (Script(http(207, b'{"runs": [{"run_id": "somebody", "status": 500}]}', JSON), Then.KEEP),),
        [("succeeded", 1)] * 4,
        [4],
    ),
    "b-hang": ((Script(then=Then.HANG),), [("dead", 3)] * 4, [4, 4, 4]),
    "b-reset": ((Script(HEAD_JSON + b'{"runs": [', Then.RESET), OK), [("succeeded", 2)] * 4, [4, 4]),
    "b-half-closed": ((Script(HEAD_JSON + b'{"runs": [', Then.HALF_CLOSE), OK), [("succeeded", 2)] * 4, [4, 4]),
    "b-endless": (
        (Script(b"HTTP/1.1 207 See\r\nContent-Type: application/json\r\n\r\n", endless=b" " * 65_536), OK),
        [("succeeded", 2)] * 4,
        [4, 4],
    ),
    "b-503": ((well(503), OK), [("succeeded", 2)] * 4, [4, 4]),
    "b-404": ((well(404),), [("dead", 1)] * 4, [4]),
}


async def test_batches_are_answered_as_badly(world: World, hostile: Hostile) -> None:
    """Runs that failed are tried again, together, and no other; each has an attempt of its own."""
    async with world.runner() as runner:
        await warm(world, hostile)
        async with nothing_left(world, hostile, runner):
            for name, (scripts, _, _) in BATCHES.items():
                timeout_s = TIMEOUT_S if name == "b-hang" else ENOUGH_S
                # Without a delay those that failed together are taken together, and wait for no other.
                batch = {"batch_max": 4, "batch_linger_ms": 300, "retry_base_s": 0.0, "retry_cap_s": 0.0}
                call(world, hostile.script(name, *scripts), 4, timeout_s=timeout_s, **batch)
            await finished(world, len(BATCHES) * 4 + 1)
    found = rows(world)
    for name, (_, ends, sizes) in BATCHES.items():
        assert (name, [(row["status"], row["attempt"]) for row in found[name]]) == (name, ends)
        assert (name, [len(hit.body) for hit in hostile.at(name)]) == (name, sizes)
        arrived = Counter((run["payload"], run["attempt"]) for hit in hostile.at(name) for run in hit.body)
        assert arrived == {(n, attempt): 1 for n, (_, last) in enumerate(ends) for attempt in range(1, last + 1)}


async def test_the_delay_before_each_attempt(world: World, hostile: Hostile) -> None:
    """Full jitter: anywhere from 0 to min(cap, base * 2^(n-1)) after attempt n. What is drawn stands in wake_at."""
    base_s, cap_s, each = 1e7, 5e7, 30  # so long that none comes while the test looks
    hook = world.target(hostile.script("busy", well(429)), max_attempts=9, retry_base_s=base_s, retry_cap_s=cap_s)
    schedule, begin_s = world.schedule(hook), world.now_s - 1_000
    for n in range(4 * each):
        world.run(schedule, begin_s + n, attempt=n % 4)
    async with world.runner(concurrency=256):
        await world.until({"retrying": 4 * each})
    for attempt, bound_s in {1: base_s, 2: 2 * base_s, 3: 4 * base_s, 4: cap_s}.items():
        delays = [row["wakes_s"] - row["failed_s"] for row in rows(world)["busy"] if row["attempt"] == attempt]
        assert len(delays) == each
        assert 0 <= min(delays) < bound_s / 2 < max(delays) <= bound_s, (attempt, sorted(delays))


async def test_what_a_target_asks_for_is_the_least_delay(world: World, hostile: Hostile) -> None:
    """Retry-After in seconds or as a date, at most the cap; what cannot be understood counts as nothing."""
    base_s, cap_s, asked_s = 1e6, 2e6, 1.5e6
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=asked_s), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    bounds: dict[str, tuple[float, float]] = {
        f"{asked_s:.0f}": (asked_s, asked_s),
        date: (asked_s - 60, asked_s),
        "9" * 400: (cap_s, cap_s),
        "Fri, 31 Dec 9999 23:59:59 GMT": (cap_s, cap_s),
    }
    for nothing in (
        "-1500000",
        "1500000.5",
        "1e6",
        "soon",
        past,
        "",
        "0",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "\u0661\u0665",
    ):
        bounds[nothing] = (0, base_s)
    cases = {f"{status}-{n}": (status, value) for status in (429, 503) for n, value in enumerate(bounds)}
    async with world.runner(concurrency=256):
        for path, (status, value) in cases.items():
            url = hostile.script(path, well(status, Retry_After=value))
            call(world, url, retry_base_s=base_s, retry_cap_s=cap_s)
        await world.until({"retrying": len(cases)})
    for path, (_, value) in cases.items():
        (row,) = rows(world)[path]
        low, high = bounds[value]
        assert low - 0.001 <= row["wakes_s"] - row["failed_s"] <= high + 0.001, (value, row)


@pytest.mark.alone
async def test_deadlines_are_kept(world: World, hostile: Hostile) -> None:
    """However the target spins it out: the attempt has failed, and the connection is closed, within 250 ms of its deadline."""
    slow = [name for name, case in CASES.items() if case.says == LATE]
    urls = {name: hostile.script(name, *CASES[name].scripts) for name in slow}
    with deaf_port() as deaf:
        urls |= {"no-tls": f"https://127.0.0.1:{hostile.port}/no-tls", "deaf": f"http://127.0.0.1:{deaf}/deaf"}
        async with world.runner(concurrency=256):
            for limit_s in (0.5, 1.0):
                for url in urls.values():
                    call(world, f"{url}?{limit_s}", timeout_s=limit_s, max_attempts=1)
                call(
                    world, f"{urls['deaf']}-connect?{limit_s}", connect_timeout_s=limit_s, timeout_s=9.0, max_attempts=1
                )
            await finished(world, 2 * len(urls) + 2)
    for path, (row,) in rows(world).items():
        limit_s = float(path.partition("?")[2])
        took_s = row["failed_s"] - row["started_s"]
        assert limit_s - 0.02 <= took_s <= limit_s + KEPT_S, (path, took_s, row["failures"])
        for hit in hostile.at(path):
            assert hit.ended_s is not None
            assert hit.ended_s - hit.arrived_s <= limit_s + KEPT_S, path
