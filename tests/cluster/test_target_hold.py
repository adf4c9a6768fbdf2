"""A hold on one target in an incident, under steady load: nothing of it starts, nothing of it is lost, and nobody else notices (I5)."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from bucketd.client import Release
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import Call, Key, Row, collect, rows
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.target import Reply, Request
from tests.support.waiting import wait_until

OTHERS = ("other-a", "other-b")
EACH = 8  # schedules a policy, and of each other target; every one fires each second
THRESHOLD_S = 8  # of a misfire
POLICIES = ("run_once", "skip", "catch_up")
HOLD_S, LEAST_S = 3, 10  # after the begin: the hold, and the end of the load of its target at the earliest
LONGER_S = 6  # the load of the others beyond that
CONFIRM_S = 0.1  # a statement that began before the acknowledgement may read the clock a little after it
CALL_S = 5.0  # from there to its call, at most
LATE_P99_S = 1.0  # of the others: far above what they need, far below what a hold or a backlog in their way would cost

RAN, SKIPPED, CAUGHT_UP = ("succeeded", None), ("skipped", "misfire"), ("succeeded", "catch_up")


@pytest.mark.timeout(120)
@pytest.mark.long
async def test_a_hold_on_one_target_in_an_incident(cluster: Cluster) -> None:
    """It answers 429 to everything, is held, mended and released; two others get their calls all the time."""
    for name in OTHERS:
        cluster.client.targets.put(name, cluster.target.url.removesuffix("hook") + name)
    cluster.client.targets.put(TARGET, cluster.target.url, retry_base_s=0.5, retry_cap_s=1, max_attempts=100)
    cluster.target.script = in_trouble
    cluster.begin_at_second(39)
    await cluster.start(nodes=1, runners=2)
    load, begin, end = steady_load(cluster)
    await cluster.until(begin + HOLD_S)
    await asyncio.to_thread(cluster.client.hold, target=TARGET, reason="it is in trouble")
    held_at = cluster.now()
    await cluster.settled(
        end, end - cluster.now() + 20
    )  # what is refused for a hold gets its row when its minute is settled
    kept = [row for row in rows(cluster) if not is_other(row)]
    complain_of_hold(cluster, load, kept, held_at)
    cluster.target.script = lambda request: Reply()
    release_at = cluster.now()
    counts = await asyncio.to_thread(cluster.client.release, target=TARGET)
    released_at = cluster.now()
    await wait_until(lambda: len(rows(cluster)) == load.fires, 20, f"{load.fires} runs")
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    complain_of_release(kept, evidence.rows, counts, (release_at, released_at))
    complain_of_others(load, evidence.rows, [call for call in evidence.calls if is_other(call)])


def in_trouble(request: Request) -> Reply:
    """A 429 is no failure that a breaker opens by: nothing but the hold stands in the way."""
    return Reply(429 if request.path == "/hook" else 200)


def is_other(one: Row | Call) -> bool:
    return one.key[1].startswith(OTHERS)


def steady_load(cluster: Cluster) -> tuple[Load, int, int]:
    """Of the target that will be held some schedules of each policy, until the end of a minute, and of the others; begin and end."""
    load, begin = Load(), int(cluster.now()) + 3
    end = minute_after(begin + LEAST_S)
    for policy in POLICIES:
        load.every(policy, EACH, 1, begin, end, misfire=policy, misfire_threshold_s=THRESHOLD_S)
    for name in OTHERS:
        load.every(name, EACH, 1, begin, end + LONGER_S, target=name)
    load.put(cluster)
    return load, begin, end


def complain_of_hold(cluster: Cluster, load: Load, kept: list[Row], held_at: float) -> None:
    """Just before the release: nothing of the target has started since the hold, and all of it is there."""
    arrived = [request.wall_s for request in cluster.target.requests if request.path == "/hook"]
    assert arrived, "it was never called, so the hold shows nothing"
    assert max(arrived) + cluster.offset_s < held_at + CALL_S
    started = [row for row in kept if (row.started or 0) > held_at + CONFIRM_S]
    assert not started, f"started {max(row.started or 0 for row in started) - held_at:.3f} s after the acknowledgement"
    due = {(key, at) for key, instants in load.due.items() for at in instants if not key[1].startswith(OTHERS)}
    assert {(row.key, row.at) for row in kept} == due
    assert Counter(row.status for row in kept) == Counter(held=len(due))
    assert sum(row.attempt == 0 for row in kept) > sum(row.attempt > 0 for row in kept) > 0


def complain_of_release(kept: list[Row], found: Sequence[Row], counts: Release, instants: tuple[float, float]) -> None:
    """What had been started goes on; of the rest what is late goes the way of its schedule's policy, and the others run."""
    after = {(row.key, row.at): (row.status, row.reason) for row in found}
    begun, held = [row for row in kept if row.attempt], [row for row in kept if not row.attempt]
    assert {after[row.key, row.at] for row in begun} == {("succeeded", None)}
    # Judged at some moment of the release: what became late just then may have gone either way.
    first, last = (verdicts(held, at) for at in instants)
    wrong = {one: after[one] for one in first if after[one] not in (first[one], last[one])}
    assert not wrong, f"{len(wrong)} of {len(held)} went the wrong way: {list(wrong.items())[:5]}"
    assert set(Counter(first.values())) == {SKIPPED, CAUGHT_UP, RAN}
    assert counts.skipped == sum((row.status, row.reason) == SKIPPED for row in found)
    assert counts.retrying == len(begun)


def verdicts(held: list[Row], at: float) -> dict[tuple[Key, float], tuple[str, str | None]]:
    """What becomes of these rows, which nobody has started, if they are judged at that instant: their last status and reason."""
    found: dict[tuple[Key, float], tuple[str, str | None]] = {}
    newest: dict[Key, float] = {}
    for row in sorted(held, key=lambda row: row.at):
        policy, late = row.key[1].partition("-")[0], at - row.at > THRESHOLD_S
        found[row.key, row.at] = {"catch_up": CAUGHT_UP, "skip": SKIPPED, "run_once": RAN}[policy] if late else RAN
        if late and policy == "run_once":
            if row.key in newest:
                found[row.key, newest[row.key]] = SKIPPED
            newest[row.key] = row.at
    return found


def complain_of_others(load: Load, found: Sequence[Row], made: Sequence[Call]) -> None:
    """Each of their occurrences ran at once, in one attempt."""
    due = {(key, at) for key, instants in load.due.items() for at in instants if key[1].startswith(OTHERS)}
    assert Counter((call.key, call.at) for call in made) == Counter(due)
    ran = {(row.status, row.attempt, row.origin, row.reason) for row in found if is_other(row)}
    assert ran == {("succeeded", 1, "fire", None)}
    late = sorted(call.arrived - call.at for call in made)
    assert late[len(late) * 99 // 100] < LATE_P99_S, f"p99 of the others: {late[len(late) * 99 // 100]:.3f} s"
