"""Minutes that nobody watched: each policy gets its verdict in one pass, and a second pass changes nothing."""

from typing import Any

from tests.support.cluster import Cluster
from tests.support.evidence import Row, collect, rows
from tests.support.invariants import check
from tests.support.load import Load
from tests.support.waiting import wait_until

AWAY_S = 170
POLICIES: dict[str, dict[str, Any]] = {
    "once": {"misfire": "run_once"},
    "skip": {"misfire": "skip"},
    "deadline": {"misfire": "run_once", "deadline_s": 20},
    "all": {"misfire": "catch_up"},
}


def of(name: str, found: list[Row]) -> list[Row]:
    return [row for row in found if row.key[1] == f"{name}-0000"]


async def test_minutes_without_a_node_settle_in_one_pass_and_stay_settled(cluster: Cluster) -> None:
    cluster.turn_clock(-AWAY_S)
    begin = int(cluster.now()) + 1
    load = Load()
    for name, policy in POLICIES.items():
        load.every(name, 1, 5, begin, begin + 60, **policy)  # all of it over 100 s ago when somebody looks
    load.put(cluster)
    cluster.turn_clock(0)
    # As if somebody had settled until then: an older watermark would make it a matter of backfills.
    stood = "update bucketd.partitions set settled_through = to_timestamp(%s)"
    cluster.sql(stood, begin - 1)
    await cluster.start(nodes=1, runners=1)
    await cluster.settled(begin + 60, 30)
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    found = list(evidence.rows)
    fires = len(load.due["default", "once-0000"])
    assert [(row.status, row.missed) for row in of("once", found)] == [("succeeded", fires - 1)]
    assert [(row.status, row.missed) for row in of("skip", found)] == [("skipped", fires - 1)]
    assert [(row.status, row.missed, row.reason) for row in of("deadline", found)] == [
        ("skipped", fires - 1, "past_deadline")
    ]
    assert [(row.status, row.missed) for row in of("all", found)] == [("succeeded", 0)] * fires
    assert of("once", found)[0].at == max(load.due["default", "once-0000"]), (
        "the newest missed slot is the one that runs"
    )

    cluster.nodes[0].terminate()
    await cluster.nodes[0].wait_exit(10)
    cluster.sql(stood, begin - 1)
    cluster.start_node()
    await cluster.settled(begin + 60, 30)
    await cluster.quiet()
    assert rows(cluster) == found


async def test_a_window_longer_than_five_minutes(cluster: Cluster) -> None:
    """It is owed as a backfill, expanded in chunks, and ends in the same verdicts."""
    cluster.turn_clock(-900)
    begin = int(cluster.now()) + 1
    load = Load()
    for name, policy in POLICIES.items():
        load.every(name, 3, 20, begin, begin + 600, **policy)
    load.put(cluster)
    cluster.turn_clock(0)
    cluster.sql("update bucketd.partitions set settled_through = to_timestamp(%s)", begin - 1)
    await cluster.start(nodes=1, runners=1)
    owed = "select count(*) from bucketd.backfills where finished_at is null"
    await wait_until(
        lambda: cluster.settled_through() >= begin + 600 and not cluster.one(owed),
        60,
        "the window to be settled and expanded",
    )
    await cluster.quiet()
    evidence = collect(cluster, load.due)
    check(evidence)
    fires = len(load.due["default", "all-0000"])
    assert [row.status for row in of("all", list(evidence.rows))] == ["succeeded"] * fires
    assert {row.missed for row in of("skip", list(evidence.rows))} == {fires - 1}
