"""Valkey in place of Redis, as one server and as a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketd.embedded import start_redis
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.keys import Keys
from bucketd.store.redis_client import check_redis, make_redis
from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load
from tests.support.processes import Processes
from tests.support.redis_cluster import redis_cluster
from tests.support.redis_kinds import serving, valkey
from tests.support.redis_uses import everything
from tests.support.target import Target
from tests.support.waiting import wait_until


async def test_everything_works_with_one_server(
    servers: Path, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(valkey(), tmp_path / "bin", monkeypatch), start_redis(servers / f"valkey-{prefix}") as server:
        settings = Settings.load({}, redis_url=server.url)
        client = make_redis(settings)
        await check_redis(client, settings)
        assert (await client.info("server"))["server_name"] == "valkey"
        await everything(client, Keys(prefix))
        await client.aclose()


@pytest.fixture
def cluster(
    dsn: str, servers: Path, prefix: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """On three masters and three replicas."""
    with serving(valkey(), tmp_path / "bin", monkeypatch), redis_cluster(servers / f"valkey-{prefix}") as started:
        assert all(node.client.info("server")["server_name"] == "valkey" for node in started.nodes)
        settings = Settings.load({}, dsn=dsn, redis_url=started.url, redis_prefix=prefix, egress_allow=LOOPBACK)
        processes = Processes(settings, tmp_path)
        made = Cluster(settings, processes, target)
        yield made
        processes.reap()
        made.close()


@pytest.mark.long
@pytest.mark.long
@pytest.mark.timeout(60)
async def test_what_is_due_arrives_once_by_a_cluster_of_it(cluster: Cluster) -> None:
    await cluster.start(nodes=2, runners=2)
    begin = int(cluster.now()) + 3
    load = Load()
    load.every("tick", 300, 1, begin, begin + 5)
    load.put(cluster)
    await cluster.until(begin + 5)
    await wait_until(lambda: len(cluster.target.runs) >= load.fires, 20, f"{load.fires} calls")
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    assert {row.origin for row in evidence.rows} == {"fire"}
