"""Nodes and runners on a real Redis Cluster: what is due arrives once, while a master dies and while a shard moves house."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.keys import TAGS, slot
from tests.support.cluster import Cluster
from tests.support.evidence import calls, collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.processes import Processes
from tests.support.redis_cluster import RedisCluster, redis_cluster
from tests.support.target import Target
from tests.support.waiting import wait_until
from tests.support.watermarks import Watermarks

LEAD_S = 4  # to create the schedules


NO_FAIL_OVER = {"cluster-require-full-coverage": "no", "cluster-replica-no-failover": "yes"}


@pytest.fixture
def stores(servers: Path, prefix: str, request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """Three masters and three replicas of this test's own; a parameter has settings of them."""
    with redis_cluster(servers / f"cluster-{prefix}", getattr(request, "param", {})) as started:
        yield started


@pytest.fixture
def cluster(dsn: str, stores: RedisCluster, prefix: str, target: Target, tmp_path: Path) -> Iterator[Cluster]:
    """On Redis Cluster in place of one server."""
    settings = Settings.load({}, dsn=dsn, redis_url=stores.url, redis_prefix=prefix, egress_allow=LOOPBACK)
    processes = Processes(settings, tmp_path)
    made = Cluster(settings, processes, target)
    yield made
    processes.reap()
    made.close()


def steady(
    cluster: Cluster, a_second: int, end_s: int | None = None, *, for_s: int = 0, lead_s: int = LEAD_S
) -> tuple[Load, int, int]:
    """So many fires each second; with its begin and end."""
    begin = int(cluster.now()) + lead_s
    end = end_s or begin + for_s
    load = Load()
    load.every("tick", a_second // 2, 1, begin, end)
    load.every("slow", a_second, 2, begin, end)
    load.put(cluster)
    assert cluster.now() < begin, "the machine was too slow to create the schedules in time"
    return load, begin, end


@pytest.mark.timeout(120)
async def test_what_is_due_arrives_once_from_every_shard(cluster: Cluster, stores: RedisCluster) -> None:
    await cluster.start(nodes=1, runners=1)
    load, begin, _ = steady(cluster, 200, for_s=2, lead_s=2)
    used = {partition % len(TAGS) for (partition,) in cluster.sql("select partition_id from bucketd.schedules")}
    assert len({stores.master(slot(TAGS[shard])).port for shard in used}) == 3
    await wait_until(lambda: len(cluster.target.runs) >= load.fires, begin + 40 - cluster.now(), f"{load.fires} calls")
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    assert {row.origin for row in evidence.rows} == {"fire"}, "all came by Redis"


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_master_dies_under_load(cluster: Cluster, stores: RedisCluster) -> None:
    """Its replica takes over; what fell due meanwhile arrives, and nothing twice. Then it comes back as a replica."""
    cluster.begin_at_second(30)
    await cluster.start(nodes=2, runners=2)
    load, begin, end = steady(cluster, 300, minute_after(cluster.now() + LEAD_S + 16))
    dying = stores.master(slot(TAGS[0]))
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 5.3)
        dying.kill9()
        await wait_until(lambda: len(stores.masters()) == 3, 15, "a replica to take over")
        took_over_s = cluster.now()
        await cluster.until(end - 3)
        stores.restart(dying)
        await wait_until(stores.whole, 15, "it to come back as a replica")
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
        evidence = collect(cluster, load.due)
        check(evidence)
    for process in (*cluster.nodes, *cluster.runners):
        assert process.returncode is None, process.tail()
    late = [call for call in evidence.calls if call.at > took_over_s + 4 and call.arrived - call.at > 2]
    assert not late, "after the fail-over everything is on time again"


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("stores", [NO_FAIL_OVER], indirect=True)
async def test_a_master_without_a_replica_stops_its_own_shards_alone(cluster: Cluster, stores: RedisCluster) -> None:
    """For longer than a lease is believed. Then it comes back with nothing, and what fell due meanwhile arrives late."""
    cluster.begin_at_second(30)
    await cluster.start(nodes=2, runners=2)
    load, begin, end = steady(cluster, 300, minute_after(cluster.now() + LEAD_S + 18))
    dying = stores.master(slot(TAGS[0]))
    of_shard = [stores.master(slot(tag)) is dying for tag in TAGS]
    names = cluster.sql("select tenant, name, partition_id from bucketd.schedules")
    hit = {(tenant, name) for tenant, name, partition in names if of_shard[partition % len(TAGS)]}
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 4.3)
        dying.kill9()
        await cluster.until(begin + 12.3)
        meanwhile = [call for call in calls(cluster) if begin + 5 <= call.at < begin + 12]
        stores.restart(dying)
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
        evidence = collect(cluster, load.due)
        check(evidence)
    assert {call.key for call in meanwhile} == load.due.keys() - hit
    assert max(call.arrived - call.at for call in meanwhile) < 2, "the other shards are on time"
    assert {row.status for row in evidence.rows} == {"succeeded"}
    assert {row.reason for row in evidence.rows} == {None}, "late, and no misfire"


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_fail_over_that_lost_the_last_seconds_of_writes(cluster: Cluster, stores: RedisCluster) -> None:
    """The replica sleeps while its master is written to, and wakes when that is dead. Leases outlive it all, so
    only the fence can tell the owner, who plans again what it had planned meanwhile."""
    cluster.begin_at_second(30)
    await cluster.start(nodes=2, runners=2, env={"BUCKETD_LEASE_TTL_S": "20"})
    load, begin, end = steady(cluster, 300, minute_after(cluster.now() + LEAD_S + 16))
    dying = stores.master(slot(TAGS[0]))
    (replica,) = [stores.at(int(port)) for _, port, _ in dying.ask("ROLE")[2]]
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 4.3)
        os.kill(replica.server.pid, signal.SIGSTOP)
        dying.client.client_kill_filter(_type="replica")  # what was sent to it already, it reads when it wakes
        late = Load()
        late.every("lost", 100, 1, begin + 8, end)
        late.put(cluster)
        await cluster.until(begin + 6.3)
        dying.kill9()
        os.kill(replica.server.pid, signal.SIGCONT)
        await wait_until(lambda: len(stores.masters()) == 3, 15, "the replica to take over")
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
        evidence = collect(cluster, {**load.due, **late.due})
        check(evidence)
    assert any("redis_lost_data" in node.output() for node in cluster.nodes), "nobody saw it"
    assert {row.status for row in evidence.rows} == {"succeeded"}
    assert {row.reason for row in evidence.rows} == {None}, "late, and no misfire"
    overdue = [call for call in evidence.calls if call.at > end - 5 and call.arrived - call.at > 2]
    assert not overdue, "after the fail-over everything is on time again"


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_shard_moves_to_another_master_under_load(cluster: Cluster, stores: RedisCluster) -> None:
    """Key by key, with seconds in which its keys are apart; and the next one in one go."""
    cluster.begin_at_second(35)
    await cluster.start(nodes=2, runners=2)
    load, begin, end = steady(cluster, 300, minute_after(cluster.now() + LEAD_S + 12))
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 3)
        slow = slot(TAGS[3])
        source, target = stores.begin_move(slow)
        for second in (4.0, 4.7, 5.4):
            stores.move_keys(slow, source, target, most=7)
            await cluster.until(begin + second)
        stores.move_keys(slow, source, target)
        stores.end_move(slow, source, target)
        await cluster.until(begin + 7)
        quick = slot(TAGS[8])
        source, target = stores.begin_move(quick)
        stores.move_keys(quick, source, target)
        stores.end_move(quick, source, target)
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
        evidence = collect(cluster, load.due)
        check(evidence)
    for process in (*cluster.nodes, *cluster.runners):
        assert process.returncode is None, process.tail()
    late = [call for call in evidence.calls if call.at > begin + 9 and call.arrived - call.at > 2]
    assert not late, "after the moves everything is on time again"
