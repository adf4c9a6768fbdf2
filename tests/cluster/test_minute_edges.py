"""A commit that comes late, a pause and a hold, each across a minute that is settled meanwhile. They share one cluster."""

import asyncio

import psycopg
import pytest

from bucketd.client import every
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after, seconds, utc
from tests.support.waiting import wait_until

NAMES = 20
CONFIRM_S = 0.1  # a statement that began before the acknowledgement may read the clock a little after it


@pytest.mark.timeout(180)
@pytest.mark.long
async def test_a_late_commit_a_pause_and_a_hold(cluster: Cluster) -> None:
    cluster.begin_at_second(40)
    await cluster.start(nodes=2, runners=2)
    minute = minute_after(cluster.now() + 10)
    async with asyncio.TaskGroup() as scenarios:
        scenarios.create_task(commits_late(cluster, minute))
        scenarios.create_task(paused_and_resumed(cluster, minute))
        scenarios.create_task(held_and_released(cluster, minute))
    await cluster.quiet()


async def commits_late(cluster: Cluster, minute: int) -> None:
    """The statement ran at second 56; its commit came when the next minute had begun and this one was settled."""
    await cluster.until(minute - 4)
    end = minute + 12
    options = {"tenant": "late", "target": TARGET, "ends_at": utc(end), "overlap": "allow"}
    with psycopg.connect(cluster.dsn) as caller:
        made = cluster.client.schedules.put("late", every(1, phase=0), connection=caller, **options)  # type: ignore[arg-type]
        await cluster.settled(minute, 20)
        await cluster.until(minute + 3)
        caller.commit()
    committed = cluster.now()
    due = {("late", "late"): seconds(1, 0, made.created_at.timestamp(), end)}
    assert min(due["late", "late"]) < minute < committed
    # What lies before the watermark is looked after with the next minute; by then it may be a misfire, which is counted.
    accounted = "select count(*) + coalesce(sum(missed), 0) from bucketd.runs where tenant = 'late'"
    await wait_until(lambda: cluster.one(accounted) >= len(due["late", "late"]), 100, "all runs, or their count")
    await cluster.finished(20, tenant="late")
    evidence = collect(cluster, due, tenant="late")
    check(evidence)
    on_time = [call for call in evidence.calls if call.at > committed + 2]
    assert on_time, "expected instants after the commit"
    assert max(call.arrived - call.at for call in on_time) < 1.0


async def paused_and_resumed(cluster: Cluster, minute: int) -> None:
    """I5: nothing starts after the pause was acknowledged; after the resume only what is due from then on."""
    begin, end = minute - 6, minute + 6
    load = Load()
    load.every("tick", NAMES, 1, begin, end, tenant="paused")
    load.put(cluster)
    names = [name for _, name in load.due]
    await cluster.until(minute - 2.6)
    paused, resumed = {}, {}
    for name in names:
        before = cluster.now()
        cluster.client.schedules.pause(name, tenant="paused")
        paused[name] = (before, cluster.now())
    await cluster.until(minute + 2.4)
    for name in names:
        before = cluster.now()
        cluster.client.schedules.resume(name, tenant="paused")
        resumed[name] = (before, cluster.now())
    await cluster.until(end + 1)
    await cluster.finished(20, tenant="paused")
    due, either_way = {}, {}
    for name in names:
        # A fire that was due when the pause came, and not yet confirmed, is dropped.
        dropped = {s for s in load.due["paused", name] if paused[name][0] - 1 <= s <= paused[name][1]}
        either_way["paused", name] = dropped | seconds(1, 0, *resumed[name])
        kept = {s for s in load.due["paused", name] if s < paused[name][0] or s > resumed[name][1]}
        due["paused", name] = kept - either_way["paused", name]
    evidence = collect(cluster, due, either_way, tenant="paused")
    check(evidence)
    for row in evidence.rows:
        assert row.started is not None
        in_pause = paused[row.key[1]][1] + CONFIRM_S < row.started < resumed[row.key[1]][0]
        assert not in_pause, f"started in the pause: {row}"
    for call in evidence.calls:
        assert not paused[call.key[1]][1] + 5 < call.arrived < resumed[call.key[1]][0]


async def held_and_released(cluster: Cluster, minute: int) -> None:
    """I5 for holds: nothing starts while it holds; what was due meanwhile runs after the release, late."""
    load = Load()
    load.every("tick", NAMES, 2, minute - 8, minute, tenant="held")
    load.put(cluster)
    await cluster.until(minute - 3.5)
    cluster.client.hold(tenant="held", reason="an incident")
    acknowledged = cluster.now()
    await cluster.settled(minute, 30)
    during = collect(cluster, load.due, tenant="held")
    assert {row.status for row in during.rows if row.at > acknowledged} == {"held"}
    assert all(row.started is None or row.started < acknowledged + CONFIRM_S for row in during.rows)
    assert all(call.arrived < acknowledged + 5 for call in during.calls)
    cluster.client.release(tenant="held")
    await cluster.finished(20, tenant="held")
    evidence = collect(cluster, load.due, tenant="held")
    check(evidence)
    assert len(evidence.calls) == load.fires, "the release was within the threshold: everything runs"
