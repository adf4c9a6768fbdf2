"""Postgres ends every connection, crashes, and is away for a while, under load: processes stay, say so once, and go on at once."""

import os
import re
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bucketd.embedded import Server, start_postgres
from bucketd.embedded.postgres import DATABASE
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.migrate import migrate
from tests.support.cluster import Cluster
from tests.support.evidence import collect
from tests.support.invariants import check
from tests.support.load import Load, minute_after
from tests.support.processes import Process, Processes
from tests.support.target import Target
from tests.support.waiting import wait_until

SETTINGS = {"fsync": "off", "shared_buffers": "64MB"}
AWAY_S = 10
PROMPT_S = 8.0  # the longest pause between two tries of a pool is 4 s, that of a duty or a part 2 s
OTHERS = "from pg_stat_activity where application_name ~ '^bucketd' and application_name <> 'bucketd client'"


class Faulty:
    """A cluster on a Postgres of its own."""

    def __init__(self, cluster: Cluster, directory: Path, server: Server) -> None:
        self.cluster = cluster
        self._directory = directory
        self.server = server

    async def end_connections(self) -> None:
        """All of our processes, in the middle of their work."""
        assert len(self.cluster.sql(f"select pg_terminate_backend(pid) {OTHERS}")) > 20

    async def crash(self) -> None:
        """A backend is killed: the server throws all others out and recovers, and tells so to who asks meanwhile."""
        os.kill(self.cluster.postgres.info.backend_pid, signal.SIGKILL)
        await self._back()

    async def go_away(self) -> None:
        """A fast shutdown; for a while connections are refused."""
        self.server.stop()
        until = time.monotonic() + AWAY_S
        await wait_until(lambda: time.monotonic() > until, AWAY_S + 1, "the time that it is away")
        self.server = start_postgres(self._directory, settings=SETTINGS, port=self.server.port)
        await self._back()

    async def _back(self) -> None:
        self.cluster.postgres.close()
        await wait_until(self._connects, 30, "Postgres to be back")

    def _connects(self) -> bool:
        try:
            self.cluster.postgres = psycopg.connect(self.cluster.dsn, autocommit=True)
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture
def faulty(servers: Path, own_redis: Server, prefix: str, target: Target, tmp_path: Path) -> Iterator[Faulty]:
    directory = servers / f"own-{uuid.uuid4().hex[:8]}"
    server = start_postgres(directory, settings=SETTINGS)
    dsn = server.database_url(DATABASE, tcp=True)
    migrate(dsn)
    settings = Settings.load({}, dsn=dsn, redis_url=own_redis.url, redis_prefix=prefix, egress_allow=LOOPBACK)
    processes = Processes(settings, tmp_path)
    made = Faulty(Cluster(settings, processes, target), directory, server)
    yield made
    processes.reap()
    made.cluster.close()
    made.server.stop()
    shutil.rmtree(directory, ignore_errors=True)


def failing(process: Process) -> list[str]:
    """Parts that say they fail and have not said that they are well again. AssertionError if one says so twice."""
    down: list[str] = []
    for what, part in re.findall(r"(?:store|duty)_(failing|recovered) (?:part|duty)=(\w+)", process.output()):
        if what == "failing":
            assert part not in down, f"{part} said twice that it fails: {process.tail()}"
            down.append(part)
        else:
            down.remove(part)
    return down


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_postgres_goes_and_comes(faulty: Faulty) -> None:
    cluster = faulty.cluster
    cluster.begin_at_second(5)
    await cluster.start(nodes=2, runners=2)
    processes = [*cluster.nodes, *cluster.runners]
    begin = int(cluster.now()) + 3
    end = minute_after(begin + 62)
    load = Load()
    load.every("tick", 60, 2, begin, end, misfire_threshold_s=600)
    load.put(cluster)
    for at_s, fault in ((4, faulty.end_connections), (14, faulty.crash), (26, faulty.go_away)):
        await cluster.until(begin + at_s)
        await fault()
        healed = cluster.now()
        calls = len(cluster.target.runs)
        await wait_until(lambda before=calls: len(cluster.target.runs) > before + 30, 30, "calls to go on")  # type: ignore[misc]
        assert cluster.now() - healed < PROMPT_S, f"{fault.__name__}: they went on after {cluster.now() - healed:.1f} s"
        await wait_until(lambda: not any(map(failing, processes)), 30, "every part to say that it is well again")
    await cluster.settled(end, 120)
    await cluster.quiet()
    check(collect(cluster, load.due))
    for process in processes:
        assert process.returncode is None
        lines = process.output().splitlines()
        assert not [line for line in lines if not re.match(r"\d{4}-\d\d-\d\dT", line)], "a library talks past our log"
        assert len([line for line in lines if "_failing" in line]) <= 3 * 12, "a line for each try"
