"""A master with a replica, watched by three sentinels: nodes and runners follow a fail-over."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import RedisError

from bucketd.embedded import Server, start_redis
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.errors import StoreUnavailable
from bucketd.store.redis_client import check_redis, make_redis
from bucketd.store.redis_sync import make_sync_redis
from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.processes import Processes
from tests.support.redis_kinds import sentinels
from tests.support.target import Target
from tests.support.waiting import wait_until
from tests.support.watermarks import Watermarks

PASSWORD = "of-the-servers"
OF_SENTINELS = "of-the-sentinels"


@dataclass
class Watched:
    """The servers, and the address by which the master is found."""

    master: Server
    replica: Server
    url: str

    def kill_master(self) -> None:
        """SIGKILL."""
        os.kill(self.master.pid, signal.SIGKILL)
        self.master.stop()


@pytest.fixture
def watched(servers: Path, prefix: str) -> Iterator[Watched]:
    directory = servers / f"sentinel-{prefix}"
    for name in ("one", "two"):
        (directory / name).mkdir(parents=True)
        (directory / name / "password").write_text(PASSWORD)
    quick = {"masterauth": PASSWORD, "repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"}
    with (
        start_redis(directory / "one", settings=quick) as master,
        start_redis(directory / "two", settings={**quick, "replicaof": f"127.0.0.1 {master.port}"}) as replica,
        sentinels(directory / "sentinels", master.port, PASSWORD, OF_SENTINELS) as ports,
    ):
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"redis+sentinel://:{PASSWORD}@{hosts}/main/0?sentinel_password={OF_SENTINELS}"
        yield Watched(master, replica, url)


@pytest.fixture
def cluster(dsn: str, watched: Watched, prefix: str, target: Target, tmp_path: Path) -> Iterator[Cluster]:
    """On the master that the sentinels know."""
    settings = Settings.load({}, dsn=dsn, redis_url=watched.url, redis_prefix=prefix, egress_allow=LOOPBACK)
    processes = Processes(settings, tmp_path)
    made = Cluster(settings, processes, target)
    yield made
    processes.reap()
    made.close()


async def followed(watched: Watched) -> bool:
    """Whether each sentinel knows the others and the replica, and the replica has everything: before that no fail-over."""
    with redis.Redis.from_url(watched.replica.url, legacy_responses=False) as replica:
        role: Any = replica.role()
        if role[3] != b"connected":
            return False
    with make_sync_redis(Settings.load({}, redis_url=watched.url)) as master:
        known = [sentinel.sentinel_masters()["main"] for sentinel in master.connection_pool.sentinel_manager.sentinels]
    return all((one["num-other-sentinels"], one["num-slaves"]) == (2, 1) for one in known)


@pytest.mark.long
async def test_a_client_finds_the_master_and_the_next_one(watched: Watched) -> None:
    settings = Settings.load({}, redis_url=watched.url)
    client = make_redis(settings)
    await check_redis(client, settings)
    assert (await client.info("server"))["tcp_port"] == watched.master.port
    await wait_until(lambda: followed(watched), 20, "the sentinels to know each other")
    await client.set("x", 1)
    await client.wait(1, 2_000)
    watched.kill_master()

    async def written() -> bool:
        try:
            return bool(await client.incr("x"))
        except RedisError:
            return False

    await wait_until(written, 20, "the replica to be master")
    assert (await client.info("server"))["tcp_port"] == watched.replica.port
    assert await client.get("x") == b"2", "what failed was not repeated"
    with make_sync_redis(settings) as plain:
        assert plain.get("x") == b"2"
    await client.aclose()


async def test_a_service_that_sentinels_do_not_know(watched: Watched) -> None:
    settings = Settings.load({}, redis_url=watched.url.replace("/main/", "/other/"))
    client = make_redis(settings)
    with pytest.raises(StoreUnavailable, match=r"no master 'other': 127\.0\.0\.1:\d+ does not know it; 127"):
        await check_redis(client, settings)
    await client.aclose()


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_fail_over_under_load(cluster: Cluster, watched: Watched) -> None:
    cluster.begin_at_second(30)
    await cluster.start(nodes=2, runners=2)
    await wait_until(lambda: followed(watched), 20, "the sentinels to know each other")
    begin = int(cluster.now()) + 4
    end = minute_after(begin + 16)
    load = Load()
    load.every("tick", 150, 1, begin, end)
    load.every("slow", 300, 2, begin, end)
    load.put(cluster)
    with Watermarks(cluster, load.due):
        await cluster.until(begin + 4.3)
        watched.kill_master()
        await cluster.settled(end, end - cluster.now() + 60)
        await cluster.quiet()
        evidence = collect(cluster, load.due)
        check(evidence)
    for process in (*cluster.nodes, *cluster.runners):
        assert process.returncode is None, process.tail()
    late = [call for call in evidence.calls if call.at > end - 5 and call.arrived - call.at > 2]
    assert not late, "after the fail-over everything is on time again"
