"""Results that come too late: of a runner that slept while others took its runs over, and of calls that were cancelled."""

from tests.support.cluster import Cluster
from tests.support.evidence import calls, collect
from tests.support.invariants import check
from tests.support.load import Load
from tests.support.target import Reply
from tests.support.waiting import wait_until

RUNS = 12


async def test_a_runner_that_wakes_after_its_runs_were_given_away(cluster: Cluster) -> None:
    """It holds calls under way and claimed runs that wait their turn; none of either takes effect when it wakes."""
    cluster.target.script = lambda request: Reply(500, delay_s=1.0)  # a result that would undo a success
    await cluster.start(nodes=1, runners=0)
    zombie = cluster.start_runner(env={"BUCKETD_CONCURRENCY": "4"})
    await cluster.ready()
    load = Load()
    load.once("slow", [int(cluster.now()) + 2] * RUNS)
    load.put(cluster)
    await wait_until(lambda: cluster.target.in_flight >= 4, 20, "calls of the runner to be under way")
    zombie.stop_signal()
    cluster.target.script = lambda request: Reply()
    cluster.start_runner()
    await wait_until(
        lambda: cluster.one("select count(*) from bucketd.runs where status = 'succeeded'") == RUNS,
        30,
        "all runs to succeed elsewhere",
    )
    before = len(calls(cluster))
    zombie.cont()
    await wait_until(
        lambda: cluster.alive_runners() == 2 or zombie.returncode is not None,
        20,
        "the woken runner to begin anew, or to end",
    )
    await cluster.quiet()
    assert len(calls(cluster)) == before, "the woken runner made calls of runs that it had lost"
    check(collect(cluster, load.due))


async def test_the_results_of_cancelled_calls_are_discarded(cluster: Cluster) -> None:
    """Their runner is alive and believes in its claim, so only the fence of the result (attempt and claim) stands in the way."""
    # Successes and failures alike: each is written by a statement of its own.
    cluster.target.script = lambda request: Reply(500 if request.body["schedule"] < "slow-0006" else 200, delay_s=2.0)
    await cluster.start(nodes=1, runners=1)
    load = Load()
    load.once("slow", [int(cluster.now()) + 2] * RUNS)
    load.put(cluster)
    await wait_until(lambda: cluster.target.in_flight >= RUNS, 20, "all calls to be under way")
    for run in cluster.client.runs.list(status="running"):
        cluster.client.runs.cancel(run.id)
    await wait_until(lambda: cluster.target.in_flight == 0, 20, "the target to have answered")
    await cluster.quiet()
    states = cluster.sql("select status::text, attempt, count(*) from bucketd.runs group by 1, 2")
    assert states == [("cancelled", 1, RUNS)]
