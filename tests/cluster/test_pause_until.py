"""A pause with an end, in a whole cluster: nothing before it, and from it on everything on time, though nobody resumes."""

import pytest

from bucketd.client import cron, every
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import TENANT, seconds, utc

LATE_S = 1.0


async def arrived(cluster: Cluster, due: dict[tuple[str, str], set[float]]) -> None:
    """Exactly these instants ran, each within a second."""
    await cluster.target.wait_runs(sum(map(len, due.values())), 30)
    await cluster.quiet()
    evidence = collect(cluster, due)
    check(evidence)
    late = {call.at: call.arrived - call.at for call in evidence.calls}
    assert max(late.values()) < LATE_S, late


async def test_nothing_fires_before_the_end_and_the_first_one_is_on_time(cluster: Cluster) -> None:
    await cluster.start(nodes=2, runners=1)
    until = int(cluster.now()) + 8
    cluster.client.schedules.put(
        "tick", every(1, phase=0), target=TARGET, overlap="allow", paused=True, ends_at=utc(until + 4)
    )
    cluster.sql(
        "update bucketd.schedules set paused = true, pause_reason = 'works', paused_until = to_timestamp(%s)", until
    )  # the client would lift one that ends so soon by itself
    await cluster.until(until - 2)
    shown = cluster.client.schedules.get("tick")
    assert (shown.paused, shown.paused_until) == (True, utc(until))
    assert not cluster.one("select paused from bucketd.schedules"), "lifted by now"
    assert not cluster.target.runs
    await arrived(cluster, {(TENANT, "tick"): seconds(1, 0, until, until + 4)})
    assert not cluster.client.schedules.get("tick").paused


async def test_a_pause_that_is_shorter_than_the_pace_of_reaping(cluster: Cluster) -> None:
    """By default dead runners are looked for each 10 s."""
    await cluster.start(nodes=1, runners=1, env={"BUCKETD_RUNNER_DEAD_AFTER_S": "30"})
    cluster.client.schedules.put("tick", every(1, phase=0), target=TARGET, overlap="allow", paused=True)
    for _ in range(3):
        until = int(cluster.now()) + 3
        cluster.client.schedules.pause("tick", until=utc(until))
        await cluster.until(until - 1)
        assert not cluster.one("select paused from bucketd.schedules"), "lifted by now"
    cluster.client.schedules.put("tick", every(1, phase=0), target=TARGET, overlap="allow", ends_at=utc(until + 3))
    await cluster.until(until)
    await arrived(cluster, {(TENANT, "tick"): seconds(1, 0, until, until + 3)})


@pytest.mark.long
async def test_an_end_between_two_seconds_and_what_ran_before_the_pause(cluster: Cluster) -> None:
    await cluster.start(nodes=1, runners=1)
    begin = int(cluster.now()) + 2
    cluster.client.schedules.put(
        "tick", every(1, phase=0), target=TARGET, overlap="allow", starts_at=utc(begin), ends_at=utc(begin + 12)
    )
    await cluster.until(begin + 2.5)
    cluster.client.schedules.pause("tick", until=utc(begin + 8.4))
    await arrived(
        cluster, {(TENANT, "tick"): {*seconds(1, 0, begin, begin + 3), *seconds(1, 0, begin + 9, begin + 12)}}
    )


@pytest.mark.parametrize("is_lifted", [False, True])
@pytest.mark.long
async def test_resumed_early_it_fires_from_then_on(cluster: Cluster, is_lifted: bool) -> None:
    """Also if a node had lifted the pause already."""
    await cluster.start(nodes=1 if is_lifted else 0, runners=1)
    until = int(cluster.now()) + 60
    cluster.client.schedules.put("tick", every(1, phase=0), target=TARGET, overlap="allow", paused=True)
    cluster.client.schedules.pause("tick", until=utc(until))
    if is_lifted:
        await cluster.until(cluster.now() + 3)
        assert not cluster.one("select paused from bucketd.schedules")
        assert cluster.client.schedules.get("tick").paused
    else:
        cluster.start_node()
    resumed = cluster.client.schedules.resume("tick")
    floor = float(cluster.one("select extract(epoch from floor) from bucketd.schedules"))
    assert not resumed.paused
    first = int(floor) + 1
    cluster.client.schedules.put(
        "tick", every(1, phase=0), target=TARGET, overlap="allow", starts_at=None, ends_at=utc(first + 5)
    )
    await cluster.target.wait_runs(5, 30)
    await cluster.quiet()
    check(collect(cluster, {(TENANT, "tick"): seconds(1, 0, first, first + 5)}))


@pytest.mark.long
async def test_an_edit_during_the_pause_holds_from_its_end(cluster: Cluster) -> None:
    await cluster.start(nodes=1, runners=1)
    until = int(cluster.now()) + 8
    cluster.client.schedules.put("tick", every(1, phase=0), target=TARGET, overlap="allow", paused=True)
    cluster.client.schedules.pause("tick", until=utc(until))
    await cluster.until(until - 3)
    cluster.client.schedules.put("tick", every(2, phase=1), target=TARGET, overlap="allow", ends_at=utc(until + 6))
    await arrived(cluster, {(TENANT, "tick"): seconds(2, 1, until, until + 6)})


@pytest.mark.long
async def test_a_one_minute_cron_behind_a_pause(cluster: Cluster) -> None:
    """The pause ends with the minute; the minute was planned before."""
    await cluster.start(nodes=1, runners=1)
    until = (int(cluster.now()) // 60 + 1) * 60
    cluster.client.schedules.put(
        "m", cron("* * * * *"), target=TARGET, overlap="allow", paused=True, ends_at=utc(until + 1)
    )
    cluster.client.schedules.pause("m", until=utc(until))
    await cluster.until(until)
    await arrived(cluster, {(TENANT, "m"): {float(until)}})
