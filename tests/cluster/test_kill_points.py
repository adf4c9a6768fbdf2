"""A runner dies at each point between queue and result: no run is lost, none is doubled, attempts rise.

I1, I2, I6 and I7, by the rows of Postgres and by what the target saw.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from tests.support.cluster import QUICK_DEATH, Cluster
from tests.support.evidence import calls, collect
from tests.support.invariants import check, nobody_forgotten
from tests.support.load import Load
from tests.support.target import Reply, Request
from tests.support.waiting import wait_until

RUNS = 24
# A silent runner is dead after two seconds, and the reaper looks each second; the rest is for a busy machine.
REAPED_S = 10
SUCCEEDED, RUNNING = "succeeded", "running"


@dataclass(frozen=True)
class Death:
    """What there is when a runner has died at a point (statuses, calls), and what the one that follows has to do.

    retried: whether some run needs a second attempt; twice: whether the target sees one twice. None: as the batches fall, which need
    not all have come so far.
    """

    statuses: set[str]
    called: bool
    retried: bool | None
    twice: bool | None


POINTS = {
    "before_confirm": Death(set(), called=False, retried=False, twice=False),
    "after_commit": Death({RUNNING}, called=False, retried=True, twice=False),
    "mid_call": Death({RUNNING}, called=True, retried=True, twice=True),
    "after_response": Death({RUNNING}, called=True, retried=True, twice=True),
    "after_result": Death({SUCCEEDED, RUNNING}, called=True, retried=None, twice=None),
}


@pytest.mark.timeout(150)
async def test_a_runner_dies_at_each_point(cluster: Cluster) -> None:
    """One point after the other, each with a runner that dies there and one that follows."""
    await cluster.start(nodes=1, runners=0, env=QUICK_DEATH)
    for point, death in POINTS.items():
        load = await die(cluster, point)
        await left_behind(cluster, point, death)
        await cluster.serving_runner(env=QUICK_DEATH)
        await all_succeed(cluster, point)
        await cluster.quiet()
        judge(cluster, point, death, load)


async def die(cluster: Cluster, point: str) -> Load:
    """A runner, fires for it, and its end. Whoever ran before has left by then."""
    before = [runner for runner in cluster.runners if runner.returncode is None]
    for runner in before:
        runner.terminate()
    doomed = await cluster.serving_runner(
        env=QUICK_DEATH | ({} if point == "mid_call" else {"BUCKETD_TEST_KILL_AT": point})
    )
    assert [await runner.wait_exit(20) for runner in before] == [0] * len(before)
    cluster.target.script = hangs_at_first if point == "mid_call" else lambda request: Reply()
    load = Load()
    load.once(point, [int(cluster.now()) + 2] * RUNS, tenant=point)
    load.put(cluster)
    if point == "mid_call":
        await wait_until(lambda: cluster.target.in_flight == RUNS, 20, "all calls to be under way")
        doomed.kill9()
    assert await doomed.wait_exit(20) == -9
    return load


def hangs_at_first(request: Request) -> Reply:
    return Reply(hang=request.body["attempt"] == 1)


async def left_behind(cluster: Cluster, point: str, death: Death) -> None:
    """I7: as nobody runs, what the dead one held waits for another within the reaper's bound."""
    begun = Counter(row.status for row in collect(cluster, {}, tenant=point).rows)
    assert begun.keys() <= death.statuses | {"retrying"}, f"{point}: {begun}"
    assert bool(begun) == bool(death.statuses), f"{point}: {begun}"
    assert SUCCEEDED not in death.statuses or begun[SUCCEEDED], f"{point}: no result was written: {begun}"
    called = [call for call in calls(cluster) if call.key[0] == point]
    assert bool(called) == death.called, f"{point}: {len(called)} calls"
    await wait_until(
        lambda: not cluster.one("select count(*) from bucketd.claims"),
        REAPED_S,
        f"{point}: no claim of the dead runner",
    )
    forgotten = list(nobody_forgotten(collect(cluster, {}, tenant=point)))
    assert not forgotten, f"{point}: {forgotten}"


async def all_succeed(cluster: Cluster, point: str) -> None:
    """Until every fire of the point has a run that ended well."""
    succeeded = "select count(*) from bucketd.runs where status = 'succeeded' and tenant = %s"
    await wait_until(lambda: cluster.one(succeeded, point) == RUNS, 30, f"{point}: all runs to succeed elsewhere")


def judge(cluster: Cluster, point: str, death: Death, load: Load) -> None:
    """Every fire has become one run that succeeded, in an attempt that only the dead runner's own came before."""
    evidence = collect(cluster, load.due, tenant=point)
    check(evidence)
    assert {(row.status, row.origin) for row in evidence.rows} == {(SUCCEEDED, "fire")}, "a message was lost, or a run"
    assert len(evidence.rows) == RUNS
    seen = {row.key: tuple(call.attempt for call in evidence.calls if call.key == row.key) for row in evidence.rows}
    # The attempt that was lost may have been committed and not called yet.
    ways = {(row.attempt, seen[row.key]) for row in evidence.rows}
    assert ways <= {(1, (1,)), (2, (2,)), (2, (1, 2))}, f"{point}: {ways}"
    assert death.retried in (None, any(attempt == 2 for attempt, _ in ways)), f"{point}: {ways}"
    assert death.twice in (None, (2, (1, 2)) in ways), f"{point}: {ways}"
