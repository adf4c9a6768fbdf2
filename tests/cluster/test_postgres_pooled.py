"""The whole product through pgbouncer in transaction mode, as ops/pgbouncer.ini has it: nothing on the server is reached otherwise."""

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bucketd.embedded import Server
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.pgbouncer import pgbouncer
from tests.support.processes import Processes
from tests.support.target import Target


@pytest_asyncio.fixture
async def pooled(
    dsn: str, own_redis: Server, prefix: str, target: Target, tmp_path: Path, servers: Path
) -> AsyncIterator[Cluster]:
    async with pgbouncer(dsn, servers / f"pgbouncer-{uuid.uuid4().hex[:8]}") as url:
        settings = Settings.load({}, dsn=url, redis_url=own_redis.url, redis_prefix=prefix, egress_allow=LOOPBACK)
        processes = Processes(settings, tmp_path)
        made = Cluster(settings, processes, target)
        made.postgres.prepare_threshold = None
        yield made
        processes.reap()
        made.close()


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_cluster_behind_pgbouncer(pooled: Cluster, dsn: str) -> None:
    pooled.begin_at_second(25)
    await pooled.start(nodes=2, runners=2)
    begin = int(pooled.now()) + 3
    end = minute_after(begin + 15)
    load = Load()
    load.every("fast", 100, 1, begin, end)
    load.every("slow", 60, 7, begin, end, overlap="skip")
    load.put(pooled)
    await pooled.until(begin + 5)
    pooled.runners[0].kill9()
    pooled.nodes[0].kill9()
    for arguments in (("status", "--json"), ("doctor", "--json"), ("schedule", "list", "--json"), ("migrate",)):
        command = pooled.processes.start(*arguments)
        assert await command.wait_exit(20) in (0, 1), command.tail()
        if arguments[0] == "doctor":
            found = {one["name"]: one for one in json.loads(command.output())["checks"]}
            assert found["pooler"]["verdict"] == "ok"
            assert "taken to be in transaction mode" in found["pooler"]["found"]
    await pooled.settled(end, 90)
    await pooled.quiet()
    check(collect(pooled, load.due))
    for process in (pooled.nodes[1], pooled.runners[1]):
        assert "_failing" not in process.output(), process.tail()
