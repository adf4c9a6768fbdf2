"""A failover that loses the last commits. One dispatch per run key holds within one history of the database: what was called in the
one that is lost is called again, by the same run id."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bucketd import every
from bucketd.embedded import Server
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from tests.support.cluster import TARGET, Cluster
from tests.support.evidence import Evidence, Key, collect
from tests.support.invariants import check
from tests.support.load import TENANT, Load, minute_after, seconds, utc
from tests.support.postgres_pair import PostgresPair, postgres_pair
from tests.support.processes import Processes
from tests.support.target import Target
from tests.support.waiting import wait_until

EDITED: Key = (TENANT, "edited")
RULES = (
    1,
    4,
    7,
)  # phases of its period of 10 s: as it was made, as edited in the history that is lost, as edited after that
VERSION = "select timing_version from bucketd.schedules where name = 'edited'"
KEPT = """
select s.tenant, s.name, extract(epoch from r.scheduled_at)::float8 from bucketd.runs r join bucketd.schedules s on s.id = r.schedule_id"""
EPOCHS = "select epoch from bucketd.partitions order by partition_id"


@pytest.fixture
def pair(servers: Path) -> Iterator[PostgresPair]:
    with postgres_pair(servers) as made:
        yield made


@pytest.fixture
def replicated(pair: PostgresPair, own_redis: Server, prefix: str, target: Target, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that knows both servers."""
    settings = Settings.load({}, dsn=pair.dsn, redis_url=own_redis.url, redis_prefix=prefix, egress_allow=LOOPBACK)
    processes = Processes(settings, tmp_path)
    made = Cluster(settings, processes, target)
    yield made
    processes.reap()
    made.close()


def put_edited(cluster: Cluster, phase: int, end_s: int) -> int:
    """The schedule whose edits matter, by this rule; its timing version then."""
    options: dict[str, Any] = {"target": TARGET, "overlap": "allow", "misfire_threshold_s": 600}
    cluster.client.schedules.put(EDITED[1], every(10, phase=phase), ends_at=utc(end_s), **options)
    return int(cluster.one(VERSION))


def of_this_history(evidence: Evidence, kept: set[tuple[str, str, float]], killed_s: float) -> Evidence:
    """Without the calls whose rows were lost."""
    calls = [call for call in evidence.calls if call.arrived > killed_s or (*call.key, call.at) in kept]
    return replace(evidence, calls=calls)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_what_the_standby_did_not_get_is_done_again(replicated: Cluster, pair: PostgresPair) -> None:
    cluster = replicated
    cluster.begin_at_second(15)
    await cluster.start(nodes=2, runners=2)
    begin = int(cluster.now()) + 4
    end = minute_after(begin + 70)
    load = Load()
    load.every("fast", 40, 2, begin, end, misfire_threshold_s=600)
    load.every("slow", 60, 7, begin, end, misfire_threshold_s=600)
    load.put(cluster)
    put_edited(cluster, RULES[0], end)
    edited_from = cluster.now()
    await cluster.until(begin + 12)

    pair.catch_up()
    pair.cut_replication()
    kept = {(row[0], row[1], row[2]) for row in pair.on(pair.standby, KEPT)}
    settled = cluster.settled_through()
    lost_version = put_edited(cluster, RULES[1], end)
    cluster.client.schedules.put("lost", every(2), target=TARGET)
    cluster.client.schedules.pause("slow-0000")
    cluster.start_node()
    late_runner = await cluster.serving_runner()
    await cluster.ready()
    await wait_until(lambda: cluster.settled_through() > settled, 90, "a watermark that the standby does not have")
    epochs = [row[0] for row in cluster.sql(EPOCHS)]
    assert epochs > [row[0] for row in pair.on(pair.standby, EPOCHS)]

    await pair.kill_primary()
    killed_s = cluster.now()
    for process in (*cluster.nodes, *cluster.runners):
        await process.wait_output("_failing", 20)
    pair.promote()
    edit_begun = cluster.now()
    cluster.dsn = pair.standby_dsn()
    cluster.postgres.close()
    cluster.postgres = psycopg.connect(cluster.dsn, autocommit=True)
    assert cluster.settled_through() == settled
    assert put_edited(cluster, RULES[2], end) == lost_version, "else the fires of the lost edit are refused anyway"
    edit_done = cluster.now()
    await cluster.until(end)
    await cluster.settled(end, 120)
    await cluster.quiet(60)

    due = {**load.due, EDITED: seconds(10, RULES[0], edited_from, edit_begun) | seconds(10, RULES[2], edit_done, end)}
    either = {phase: seconds(10, phase, edit_begun, edit_done) for phase in (RULES[0], RULES[2])}
    evidence = collect(cluster, due, {EDITED: set().union(*either.values())})
    check(of_this_history(evidence, kept, killed_s))
    assert all(row.missed == 0 for row in evidence.rows), "nobody was away for longer than the threshold"
    lost = {(call.key, call.at) for call in evidence.calls} - {(row.key, row.at) for row in evidence.rows}
    assert {key for key, _ in lost} <= {EDITED, (TENANT, "lost")}, "what was called and is due has a row again"
    called = [(call.run_id, call.attempt) for call in evidence.calls]
    assert len(called) > len(set(called)), "nothing was called in both histories: the test lost nothing"
    now = [row[0] for row in cluster.sql(EPOCHS)]
    assert all(after > before for before, after in zip(epochs, now, strict=True)), "an epoch fell behind the fence"
    fences = [int(cluster.redis.hget(cluster.keys.fence(p), "epoch") or 0) for p in range(256)]
    assert fences == now
    for node in cluster.nodes:
        assert node.output().count("postgres_history_changed") == 1, node.tail()
    assert "runner_incarnation_lost" in late_runner.output(), "its row was not among what the standby got"
    assert cluster.alive_runners() == 3
