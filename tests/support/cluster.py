"""A whole cluster on a test's own servers: nodes and runners as processes, a client, and the cluster's clock."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from bucketd.client import Client
from bucketd.store.config import Settings
from bucketd.store.keys import PARTITIONS, Keys
from bucketd.store.redis_sync import make_sync_redis
from tests.support.processes import Process, Processes
from tests.support.target import Target
from tests.support.waiting import wait_until

# Leases and heartbeats of a few seconds: a test that kills a process cannot wait for the defaults.
PACE = {
    "BUCKETD_LEASE_TTL_S": "3",
    "BUCKETD_LEASE_RENEW_S": "0.8",
    "BUCKETD_LEASE_MARGIN_S": "0.5",
    "BUCKETD_RUNNER_HEARTBEAT_S": "1",
    "BUCKETD_RUNNER_DEAD_AFTER_S": "4",
    "BUCKETD_RECLAIM_IDLE_S": "3",
    "BUCKETD_WAKE_POLL_S": "0.5",
}
# On top, for nodes and runners: a runner that dies is found out in two seconds, and what it was sent goes to others in one.
QUICK_DEATH = {
    "BUCKETD_RUNNER_HEARTBEAT_S": "0.4",
    "BUCKETD_RUNNER_DEAD_AFTER_S": "2",
    "BUCKETD_RECLAIM_IDLE_S": "1",
}
READY_S = 30.0
_IDLE_IN_TRANSACTION = """
select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%%'"""
TARGET = "recorder"


class Cluster:
    """Nothing runs at first. Times are epoch seconds of the cluster's clock unless named otherwise."""

    def __init__(self, settings: Settings, processes: Processes, target: Target) -> None:
        self.settings = settings
        self.processes = processes
        self.target = target
        self.nodes: list[Process] = []
        self.runners: list[Process] = []
        self.ownerless = False  # nodes that are started now each work on all partitions
        self.offset_s = 0.0
        self.dsn = settings.dsn.get_secret_value()
        self.postgres = psycopg.connect(self.dsn, autocommit=True)
        self.redis = make_sync_redis(settings)
        self.keys = Keys(settings.redis_prefix)
        self.client = Client(
            self.dsn, redis_url=settings.redis_url.get_secret_value(), redis_prefix=settings.redis_prefix
        )
        self.client.targets.put(TARGET, target.url, retry_base_s=1)

    def close(self) -> None:
        """Closes the test's own connections."""
        self.client.close()
        self.postgres.close()
        self.redis.close()

    def now(self) -> float:
        """The cluster's clock; Postgres runs on this machine."""
        return time.time() + self.offset_s

    def turn_clock(self, offset_s: float) -> None:
        """Moves the cluster's clock against the machine's. While nothing runs: live leases would not understand it."""
        self.offset_s = offset_s
        self.sql("update bucketd.cluster set clock_offset = make_interval(secs => %s::float8)", offset_s)

    def begin_at_second(self, second: float) -> None:
        """Turns the clock forward so that it shows this second of a minute now."""
        self.turn_clock((second - time.time()) % 60)

    async def until(self, at_s: float) -> None:
        """Waits for an instant: time itself is the condition here."""
        await wait_until(lambda: self.now() >= at_s, at_s - self.now() + 1, f"the cluster's clock to show {at_s}")

    async def start(self, nodes: int = 3, runners: int = 3, *, env: Mapping[str, str] | None = None) -> None:
        """Starts processes; returns when all partitions are shared by the nodes and all runners are alive."""
        for _ in range(nodes):
            self.start_node(env=env)
        for _ in range(runners):
            self.start_runner(env=env)
        await self.ready()

    def start_node(self, *, env: Mapping[str, str] | None = None) -> Process:
        """One scheduler node."""
        switches = {"BUCKETD_TEST_NO_OWNERSHIP": "1"} if self.ownerless else {}
        self.nodes.append(self.processes.start("scheduler", env={**PACE, **switches, **(env or {})}))
        return self.nodes[-1]

    def start_runner(self, *, env: Mapping[str, str] | None = None) -> Process:
        """One runner."""
        self.runners.append(self.processes.start("runner", env={**PACE, **(env or {})}))
        return self.runners[-1]

    async def serving_runner(self, *, env: Mapping[str, str] | None = None) -> Process:
        """One runner, as soon as it serves. (`ready` counts heartbeats: those of a runner that died just now, too.)"""
        runner = self.start_runner(env=env)
        await runner.wait_output("runner_started", READY_S)
        return runner

    async def ready(self) -> None:
        """Until the living nodes share all partitions and the living runners have announced themselves."""
        await wait_until(self._ready, READY_S, "nodes to share all partitions, and runners to announce themselves")

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement; none for one that returns no rows."""
        cursor = self.postgres.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *parameters: Any) -> Any:
        """The first value of the first row."""
        return self.sql(statement, *parameters)[0][0]

    def alive_runners(self) -> int:
        """Runners with a heartbeat in the last 4 s."""
        alive = "dead_at is null and heartbeat_at > bucketd.bucketd_now() - interval '4 s'"
        return int(self.one(f"select count(*) from bucketd.runners where {alive}"))

    def settled_through(self) -> float:
        """The lowest watermark of all partitions: the last second that is settled everywhere."""
        return float(self.one("select extract(epoch from min(settled_through)) from bucketd.partitions"))

    async def settled(self, before_s: float, timeout_s: float = 60) -> None:
        """Until every partition is settled up to, not with, that whole second."""
        what = f"everything before {before_s:.0f} to be settled"
        await wait_until(lambda: self.settled_through() >= before_s - 1, timeout_s, what)

    async def finished(self, timeout_s: float = 60, *, tenant: str = "%") -> None:
        """Until no run (of this tenant) is under way or waits."""
        open_runs = "select count(*) from bucketd.runs where finished_at is null and tenant like %s"
        await wait_until(lambda: not self.one(open_runs, tenant), timeout_s, "every run to end")

    async def quiet(self, timeout_s: float = 30) -> None:
        """Until runs have ended, queues are empty and acknowledged, and no claim is left."""
        await self.finished(timeout_s)
        await wait_until(lambda: not self.leftovers(), timeout_s, "nothing to be left in queues and claims")

    def leftovers(self) -> list[str]:
        """What is still in the queues, unacknowledged, claimed, or open in a transaction; names with figures."""
        found = []
        for queue in self.keys.queues:
            if count := self.redis.xlen(queue):
                found.append(f"{count} messages in {queue}")
            groups: Sequence[dict[str, Any]] = self.redis.xinfo_groups(queue) if count else []
            found += [f"{group['pending']} pending in {queue}" for group in groups if group["pending"]]
        if claims := self.one("select count(*) from bucketd.claims"):
            found.append(f"{claims} claims")
        if count := self.one(_IDLE_IN_TRANSACTION):
            found.append(f"{count} backends idle in transaction")
        return found

    def _ready(self) -> bool:
        for process in (*self.nodes, *self.runners):
            assert process.returncode is None or process.returncode <= 0, f"it crashed: {process.tail()}"
        nodes = [process for process in self.nodes if process.returncode is None]
        runners = [process for process in self.runners if process.returncode is None]
        return self._shared_by(nodes) and self.alive_runners() >= len(runners)

    def _shared_by(self, nodes: Sequence[Process]) -> bool:
        if self.ownerless:  # such a node joins no ring and takes no partition
            return all("scheduler_started" in process.output() for process in nodes)
        members = self.redis.zcount(self.keys.members, f"({self.now() * 1000}", "+inf")
        owned, owners = self.sql("select count(owner), count(distinct owner) from bucketd.partitions")[0]
        return members == len(nodes) and (not nodes or bool(owned == PARTITIONS and owners == len(nodes)))
