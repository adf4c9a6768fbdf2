"""Redis forgets everything. Fires may be late; none is lost, none doubled, and no attempt is burnt."""

import pytest

from tests.support.cluster import Cluster
from tests.support.evidence import Evidence, collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.waiting import wait_until
from tests.support.watermarks import Watermarks


def load_until_the_minute(cluster: Cluster, at_least_s: int) -> tuple[Load, int, int]:
    """Half of the schedules count what is over 3 s late instead of running it; one policy of each kind."""
    begin = int(cluster.now()) + 4
    end = minute_after(begin + at_least_s)
    load = Load()
    load.every("patient", 100, 2, begin, end)
    load.every("newest", 100, 2, begin, end, misfire="run_once", misfire_threshold_s=3)
    load.every("never-late", 50, 2, begin, end, misfire="skip", misfire_threshold_s=3)
    load.every("every-one", 50, 2, begin, end, misfire="catch_up", misfire_threshold_s=3)
    load.once("once", [begin + i % (end - begin) for i in range(200)])
    load.put(cluster)
    assert cluster.now() < begin, "the machine was too slow to create the schedules in time"
    return load, begin, end


def check_attempts(evidence: Evidence) -> None:
    """Nothing failed, so nothing needed a second attempt."""
    assert {row.attempt for row in evidence.rows if row.status == "succeeded"} == {1}


@pytest.mark.timeout(180)
async def test_flush_while_buckets_are_full(cluster: Cluster) -> None:
    cluster.begin_at_second(36)
    await cluster.start(nodes=3, runners=3)
    load, begin, end = load_until_the_minute(cluster, 13)
    with Watermarks(cluster, load.due):
        for second in (3, 3.4, 8):  # the second one while the owners still recover from the first
            await cluster.until(begin + second)
            cluster.redis.flushall()
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    check_attempts(evidence)


@pytest.mark.timeout(180)
@pytest.mark.long
async def test_flush_while_the_queue_is_full(cluster: Cluster) -> None:
    """No runner is there yet; what was drained and lost is found by settling alone."""
    cluster.begin_at_second(36)
    await cluster.start(nodes=3, runners=0)
    load, begin, end = load_until_the_minute(cluster, 13)
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 7)
        messages = sum(cluster.redis.xlen(queue) for queue in cluster.keys.queues)
        assert messages > 100, "expected queues that fill"
        cluster.redis.flushall()
        for _ in range(3):
            cluster.start_runner()
        await wait_until(lambda: cluster.alive_runners() == 3, 20, "3 runners")
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    check_attempts(evidence)
    assert sum(row.missed for row in evidence.rows) > 100, "expected misfires that are counted, not run"
