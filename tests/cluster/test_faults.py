"""Processes die, stop and wake in the middle of the load: no run is missing, none is doubled."""

import pytest

from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.target import Reply
from tests.support.vitals import descriptors
from tests.support.waiting import wait_until
from tests.support.watermarks import Watermarks

LEAD_S = 4  # to create the schedules


def mixed_load(cluster: Cluster, fires_per_s: int, at_least_s: int) -> tuple[Load, int, int]:
    """Load until the end of a minute, so that it can be settled at once; with its begin and end."""
    begin = int(cluster.now()) + LEAD_S
    end = minute_after(begin + at_least_s)
    load = Load()
    load.every("fast", fires_per_s // 2, 1, begin, end)
    load.every("slow", fires_per_s, 4, begin, end)
    load.once("once", [begin + i % (end - begin) for i in range(fires_per_s * 10)])
    load.put(cluster)
    assert cluster.now() < begin, "the machine was too slow to create the schedules in time"
    return load, begin, end


@pytest.mark.timeout(240)
async def test_a_node_and_a_runner_die_and_a_node_sleeps_past_its_lease(cluster: Cluster) -> None:
    """10,000 fires: I1 to I4 and I6 to I9, with watermarks watched all the time, and nothing left behind (I13)."""
    cluster.begin_at_second(22)
    cluster.target.script = lambda request: Reply(delay_s=0.05)  # so that calls are under way when the runner dies
    await cluster.start(nodes=3, runners=3)
    survivors = [process.pid for process in (*cluster.nodes[1:], *cluster.runners[1:])]
    held = [descriptors(pid) for pid in survivors]
    load, begin, end = mixed_load(cluster, 420, 26)
    assert load.fires >= 10_000
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 6)
        cluster.nodes[0].kill9()
        cluster.runners[0].kill9()
        await cluster.until(begin + 9)
        cluster.nodes[1].stop_signal()
        await cluster.until(begin + 18)
        cluster.nodes[1].cont()
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    assert any(call.attempt == 2 for call in evidence.calls), "the killed runner had nothing under way"
    # Keep-alive connections to the target are the last to go.
    await wait_until(
        lambda: all(descriptors(pid) <= before + 5 for pid, before in zip(survivors, held, strict=True)),
        40,
        f"descriptors of the survivors to be near {held} again, as before the load",
    )


@pytest.mark.timeout(180)
async def test_safety_does_not_depend_on_ownership(cluster: Cluster) -> None:
    """Three nodes that all plan, drain and settle everything, and one of them dies."""
    cluster.begin_at_second(33)
    cluster.ownerless = True
    await cluster.start(nodes=3, runners=2)
    load, begin, end = mixed_load(cluster, 80, 16)
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 5)
        cluster.nodes[0].kill9()
        cluster.runners[0].kill9()
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
    check(collect(cluster, load.due))


@pytest.mark.timeout(120)
async def test_a_node_that_is_asked_to_stop_hands_over_within_a_second(cluster: Cluster) -> None:
    """SIGTERM: gone in under 1 s, the partitions elsewhere right after, and nothing late."""
    await cluster.start(nodes=2, runners=1)
    begin = int(cluster.now()) + 2
    load = Load()
    load.every("tick", 100, 1, begin, begin + 6)
    load.put(cluster)
    await cluster.until(begin + 3)
    cluster.nodes[0].terminate()
    assert await cluster.nodes[0].wait_exit(1.0) == 0
    await cluster.ready()
    await cluster.until(begin + 6)
    await wait_until(lambda: len(cluster.target.runs) >= load.fires, 20, f"{load.fires} calls")
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    assert max(call.arrived - call.at for call in evidence.calls) < 2.0
