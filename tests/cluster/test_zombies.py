"""Results that come too late: of a runner that slept while others took its runs over, and of calls that were cancelled."""

import re

import psycopg
import pytest

from tests.support.cluster import QUICK_DEATH, Cluster
from tests.support.evidence import calls, collect
from tests.support.invariants import check
from tests.support.load import Load
from tests.support.processes import Process
from tests.support.target import Reply
from tests.support.waiting import wait_until

RUNS = 12
# Who claims, and when: claims are deleted with their last result.
CLAIMS_LOG = """
create table bucketd.claims_log as select clock_timestamp() as at, runner_id from bucketd.claims with no data;
create function bucketd.log_claim() returns trigger language plpgsql as $$
begin insert into bucketd.claims_log values (clock_timestamp(), new.runner_id); return new; end $$;
create trigger log_claim after insert on bucketd.claims for each row execute function bucketd.log_claim()"""
CLAIMED_WHEN_DEAD = """
select count(*) from bucketd.claims_log l join bucketd.runners r using (runner_id) where l.at > r.dead_at"""
CONFIRM_AT_LOCK = """
select 1 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%Step 3:%' and pid <> pg_backend_pid()"""
SUCCEEDED_OF = """
select count(*) from bucketd.runs r join bucketd.schedules s on s.id = r.schedule_id
where r.status = 'succeeded' and s.name like %s"""


@pytest.mark.timeout(90)
async def test_a_zombie_confirms_nothing_and_its_late_results_are_discarded(cluster: Cluster) -> None:
    """It sleeps past its lease with calls under way, claimed runs that wait their turn, and a confirm that it has to send again."""
    cluster.sql(CLAIMS_LOG)
    # A result that would undo the success of the attempt that follows.
    cluster.target.script = lambda request: Reply(500, delay_s=3.0)
    unhurried = QUICK_DEATH | {"BUCKETD_RECLAIM_IDLE_S": "60"}  # nobody takes from it what it was sent
    await cluster.start(nodes=1, runners=0, env=QUICK_DEATH)
    zombie = await cluster.serving_runner(env={**unhurried, "BUCKETD_CONCURRENCY": "8"})
    load = Load()
    begin = int(cluster.now()) + 2
    load.once("slow", [begin] * RUNS)
    load.once("asleep", [begin + 1] * RUNS)
    load.put(cluster)
    await wait_until(lambda: cluster.target.in_flight >= 4, 20, "calls of the runner to be under way")
    with cluster.postgres.transaction():
        cluster.sql("lock table bucketd.schedules in access exclusive mode")
        await wait_until(lambda: confirming(cluster), 10, "a confirm at the lock")
        zombie.stop_signal()
        await wait_until(lambda: not confirming(cluster), 10, "that statement to be given up: nobody reads why")
    assert succeeded(cluster, "asleep") == 0
    cluster.target.script = lambda request: Reply()
    follower = await cluster.serving_runner(env=unhurried)
    await wait_until(lambda: succeeded(cluster, "slow") == RUNS, 30, "all runs to succeed elsewhere")
    made = len(calls(cluster))
    zombie.cont()
    await zombie.wait_output("runner_incarnation_lost", 20)
    await wait_until(
        lambda: succeeded(cluster, "asleep") == RUNS, 30, "its new incarnation to confirm what it had been sent"
    )
    await cluster.quiet()
    again = [call for call in calls(cluster)[made:] if call.key[1].startswith("slow")]
    assert not again, "the woken runner made calls of runs that it had lost"
    zombie.terminate()
    follower.terminate()
    assert await zombie.wait_exit(20) == 0
    counted = totals(zombie)
    assert counted.get("fenced", 0) + counted.get("dropped", 0) >= 4, counted
    assert cluster.one(CLAIMED_WHEN_DEAD) == 0
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


def confirming(cluster: Cluster) -> bool:
    """Whether a confirm statement waits for a lock. Asked on a connection of its own: a transaction sees one snapshot."""
    with psycopg.connect(cluster.dsn, autocommit=True) as other:
        return other.execute(CONFIRM_AT_LOCK).fetchone() is not None


def succeeded(cluster: Cluster, prefix: str) -> int:
    """Runs of these schedules that ended well."""
    return int(cluster.one(SUCCEEDED_OF, prefix + "%"))


def totals(runner: Process) -> dict[str, int]:
    """What a runner that has stopped says it counted."""
    line = next(line for line in runner.output().splitlines() if " runner_stopped " in line)
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)\b(?!\.)", line)}
