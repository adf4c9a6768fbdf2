"""Newer time zone data: which schedules they move, from when on, and who may not compute any more.

The zone is Asia/Tokyo, nine hours before UTC for good; the older data that a test stores for it say something else.
"""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from bucketd.scheduler import zonekeeper
from bucketd.scheduler.node import Scheduler
from bucketd.scheduler.zonekeeper import Report
from bucketd.store import tzdata
from bucketd.store.errors import SchemaError
from bucketd.store.keys import PARTITIONS
from bucketd.timing import TZDATA_VERSION, EverySpec, parse_cron
from bucketd.timing.zones import zone_data
from tests.scheduler.world import World
from tests.support.tzif import tzif
from tests.support.waiting import wait_until

HOUR_S, DAY_S = 3_600, 86_400
ZONE = "Asia/Tokyo"


def store(world: World, data: bytes | None, zone: str = ZONE, version: str = "2025b") -> None:
    """As nodes with that release would have left it. None: they had not come to storing the zone."""
    world.rows.sql("update bucketd.cluster set tzdata_version = %s, tzdata_at = bucketd.bucketd_now()", version)
    known = {"UTC": zone_data("UTC")} | ({zone: data} if data is not None else {})
    for name, bytes_ in known.items():
        world.rows.sql("insert into bucketd.zones values (%s, %s) on conflict do nothing", name, bytes_)


def cluster(world: World) -> tuple[str | None, str | None]:
    return world.rows.sql("select tzdata_version, tzdata_from from bucketd.cluster")[0]


def stored(world: World) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in world.rows.sql("select name, tzif from bucketd.zones")}


def daily(world: World, at_s: int, offset_s: int, **columns: Any) -> UUID:
    """A schedule at the time of day that a clock with this offset shows at an instant."""
    minute = (at_s + offset_s) % DAY_S // 60
    return world.rows.cron(f"{minute % 60} {minute // 60} * * *", ZONE, **columns)


def versions(world: World, id: UUID) -> list[tuple[int, bool]]:
    """(version, whether it was closed just now) of a schedule's closed intervals."""
    return [
        (version, closed)
        for version, closed in world.rows.sql(
            "select timing_version, valid_until between bucketd.bucketd_now() - interval '1 minute' and"
            " bucketd.bucketd_now() and valid_from < valid_until from bucketd.schedule_versions"
            " where schedule_id = %s order by 1",
            id,
        )
    ]


def retimes(world: World, *ids: UUID) -> list[int]:
    return [world.rows.of(id, "retimes") for id in ids]


@pytest.fixture(name="older")
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of this test have release 2025b, though no other data."""
    monkeypatch.setattr(zonekeeper, "TZDATA_VERSION", "2025b")


async def test_the_first_node_stores_its_release_and_the_data_of_zones_in_use(world: World) -> None:
    ids = [world.rows.cron("0 9 * * *", tz) for tz in (ZONE, "Europe/Berlin", ZONE)]
    ids.append(world.rows.schedule(EverySpec(60, (20_000,), "America/New_York")))
    world.rows.sql("insert into bucketd.specs (kind, rule) values ('cron', '{\"tz\":\"Mars/Olympus\"}')")
    world.rows.sql("insert into bucketd.specs (kind, rule) values ('cron', 'no \"tz\" at all')")
    scheduler = await world.scheduler()
    assert cluster(world) == (TZDATA_VERSION, None)
    assert await scheduler.zonekeeper.run_once() == Report(kept=3)
    assert stored(world) == {name: zone_data(name) for name in (ZONE, "Europe/Berlin", "America/New_York")}
    world.rows.cron("0 9 * * *", "Africa/Cairo")
    assert await scheduler.zonekeeper.run_once() == Report(kept=1)
    assert await scheduler.zonekeeper.run_once() == Report()
    assert stored(world)["Africa/Cairo"] == zone_data("Africa/Cairo")
    assert retimes(world, *ids) == [0] * 4


async def test_schedules_whose_fires_differ_are_moved_and_no_others(world: World) -> None:
    change = world.minute + 30 * DAY_S
    over = change + 50 * DAY_S
    store(world, tzif(9 * HOUR_S, [(change, 8 * HOUR_S), (over, 9 * HOUR_S)]))
    store(world, zone_data("Europe/Berlin"), "Europe/Berlin")
    store(world, zone_data("Asia/Tokyo"), "Asia/Seoul")  # other bytes; the clocks have been the same for long
    starts, ends = change + 40 * DAY_S, change - DAY_S
    noon = {"expression": "0 12 * * *", "tz": ZONE}
    moving = [
        world.rows.cron(**noon),
        world.rows.cron(**noon, paused=True),
        world.rows.cron(**noon, jitter_s=600),
        world.rows.cron(**noon, starts_at=_at(starts)),
        world.rows.cron("5 */6 * * *", ZONE),
        world.rows.schedule(EverySpec(1_200, ((change + 3 * DAY_S) // DAY_S,), ZONE)),
    ]
    staying = [
        world.rows.cron(**noon, ends_at=_at(ends)),
        world.rows.cron(**noon, starts_at=_at(over + DAY_S)),
        world.rows.cron("*/20 * * * *", ZONE),
        world.rows.cron("0 12 * * *", "Europe/Berlin"),
        world.rows.cron("0 12 * * *", "Asia/Seoul"),
        world.rows.schedule(EverySpec(1_200, ((change - 9 * DAY_S) // DAY_S,), ZONE)),
        world.rows.cron("0 12 * * *"),
        world.rows.at(change + 100),
    ]
    before = world.rows.sql("select id, revision, timing_version from bucketd.schedules where id = any(%s)", staying)
    await world.turn_to(world.minute + 5)
    scheduler = await world.scheduler(own=False)
    assert cluster(world) == (TZDATA_VERSION, "2025b")
    assert await scheduler.zonekeeper.run_once() == Report(zones=1, specs=3, schedules=6)
    assert retimes(world, *moving) == [1] * 6
    assert retimes(world, *staying) == [0] * 8
    assert before == world.rows.sql(
        "select id, revision, timing_version from bucketd.schedules where id = any(%s)", staying
    )
    held = [[(1, True)]] * 3 + [[(1, False)]] + [[(1, True)]] * 2  # before its start nothing held
    assert [versions(world, id) for id in moving] == held
    assert cluster(world) == (TZDATA_VERSION, None)
    assert stored(world) == {name: zone_data(name) for name in (ZONE, "Europe/Berlin", "Asia/Seoul", "UTC")}
    told = world.rows.sql("select actor, object_id from bucketd.audit where action = 'retime'")
    assert {actor for actor, _ in told} == {f"bucketd: tzdata 2025b -> {TZDATA_VERSION}"}
    assert {UUID(id) for _, id in told} == set(moving)
    assert await scheduler.zonekeeper.run_once() == Report(kept=0)
    assert retimes(world, *moving) == [1] * 6


def _at(epoch_s: int) -> Any:
    from bucketd.store.clock import utc

    return utc(epoch_s)


async def test_fires_follow_the_new_data_from_now_on_and_what_was_due_still_runs(
    world: World, older: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node plans by the old data, and dies; one with the new data comes half a minute after a slot."""
    m = world.minute
    due, coming = m + 60, m + 120
    old_offset_s, new_offset_s = 8 * HOUR_S, 9 * HOUR_S
    ids = [daily(world, due, old_offset_s) for _ in range(3)]
    refused, planned = daily(world, coming, old_offset_s), daily(world, coming, new_offset_s)
    passed = daily(world, due, new_offset_s)  # by the new clocks it would have been due, by the old ones it was not
    beside = UUID(int=uuid4().int >> 8 << 8 | refused.bytes[15])  # in its partition, so that both are drained
    minutely = world.rows.cron("* * * * *", ZONE, id=beside)
    with monkeypatch.context() as patched:
        patched.setattr("bucketd.timing.spec.offsets_of", _fixed(old_offset_s))
        first = await world.scheduler()
        await first.planner.run_once()
        assert await world.planned(ids[0]) == [due]
        assert await world.planned(refused) == [coming]
        assert await world.planned(planned) == []
    store(world, tzif(old_offset_s))
    await first.ownership.leave()
    monkeypatch.setattr(zonekeeper, "TZDATA_VERSION", TZDATA_VERSION)
    await world.turn_to(due + 30)
    node = await world.scheduler()
    assert (await node.zonekeeper.run_once()).schedules == 6
    assert retimes(world, minutely) == [0]
    await node.planner.run_once()
    await world.drain(node)
    await world.consume()
    assert await world.planned(planned) == [coming]
    await world.turn_to(coming + 65)
    await node.planner.run_once()
    await world.drain(node)
    fires = await world.consume()
    assert refused in {UUID(bytes=fire.schedule_id) for fire in fires}, "it had been planned, and it is no more good"
    await world.settle(node)
    assert world.settled() == {coming + 59}
    assert [[run[0] for run in world.rows.runs(id)] for id in ids] == [[due]] * 3
    assert world.rows.runs(refused) == []
    assert [run[0] for run in world.rows.runs(planned)] == [coming]
    assert world.rows.runs(passed) == [], "its new timing holds from the move on"
    assert [run[0] for run in world.rows.runs(minutely)] == [due, coming, coming + 60]


async def test_a_fire_that_was_due_before_the_move_is_confirmed_after_it(world: World) -> None:
    """What differs lies a month ahead; the fire carries the version that was closed meanwhile."""
    due = world.minute + 60
    id = daily(world, due, 9 * HOUR_S)
    store(world, tzif(9 * HOUR_S, [(due + 30 * DAY_S, 8 * HOUR_S)]))
    node = await world.scheduler(own=False)
    world.rows.sql("update bucketd.cluster set tzdata_from = null")  # it plans as one with the old data would
    await node.ownership.run_once()
    await node.planner.run_once()
    assert await world.planned(id) == [due]
    await world.turn_to(due + 20)
    world.rows.sql("update bucketd.cluster set tzdata_version = '2025b'")
    assert (await node.zonekeeper.run_once()).schedules == 1
    assert world.rows.of(id, "timing_version") == 2
    await node.planner.run_once()
    await world.drain(node)
    assert len(await world.consume()) == 1
    assert world.rows.runs(id) == [(due, "running", "fire", 0, None)]


@pytest.mark.parametrize("policy", ["run_once", "catch_up", "skip"])
async def test_what_was_due_by_the_old_data_runs_even_if_redis_lost_it(world: World, policy: str) -> None:
    """Nobody else knows the old data then: the slot is judged when its schedule moves."""
    m = world.minute + 60
    due, passed = daily(world, m, 8 * HOUR_S, misfire=policy), daily(world, m, 9 * HOUR_S, misfire=policy)
    store(world, tzif(8 * HOUR_S))
    await world.turn_to(m + 30)
    node = await world.scheduler()
    assert (await node.zonekeeper.run_once()).schedules == 2
    assert world.rows.runs(due) == [(m, "deferred", "settle", 0, None)]
    await node.planner.run_once()
    await world.turn_to(m + 125)
    await node.planner.run_once()
    await world.drain(node)
    await world.consume()
    await world.settle(node)
    assert world.settled() == {m + 119}
    assert world.rows.runs(due) == [(m, "deferred", "settle", 0, None)]
    assert world.rows.runs(passed) == [], (
        "settling, which knows the new data alone, must not find it in the old interval"
    )


async def test_a_window_that_nobody_watched_is_judged_by_the_new_data(world: World) -> None:
    m = world.minute
    by_new, by_old = (daily(world, m + 600, hours * HOUR_S, misfire="catch_up") for hours in (9, 8))
    world.rows.sql("update bucketd.partitions set feed_snapshot = pg_current_snapshot()")
    store(world, tzif(8 * HOUR_S))
    await world.turn_to(m + 1_830)
    node = await world.scheduler()
    assert (await node.zonekeeper.run_once()).schedules == 2
    await node.planner.run_once()
    await world.drain(node)
    await world.settle(node)
    while (await node.expander.run_once()).more:
        pass
    assert [run[0] for run in world.rows.runs(by_new)] == [m + 600]
    assert world.rows.runs(by_old) == []


async def test_data_that_are_not_known_move_all_of_a_zone(world: World) -> None:
    """Its first spec came in the last seconds of the older nodes; or somebody wrote what is no zone."""
    store(world, None)
    store(world, b"nonsense", "Europe/Berlin")
    ids = [world.rows.cron("*/20 * * * *", tz) for tz in (ZONE, "Europe/Berlin")]
    other = world.rows.cron("0 12 * * *")
    await world.turn_to(world.minute + 5)
    node = await world.scheduler()
    assert (await node.zonekeeper.run_once()).schedules == 2
    assert retimes(world, *ids, other) == [1, 1, 0]
    assert stored(world) == {name: zone_data(name) for name in (ZONE, "Europe/Berlin", "UTC")}


async def test_two_nodes_that_start_at_once_move_each_schedule_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one spec of many pages, in partitions of many, in one, and paused."""
    monkeypatch.setattr(zonekeeper, "CHUNK", 4)
    store(world, tzif(8 * HOUR_S))
    beside = [UUID(int=uuid4().int >> 8 << 8 | 7) for _ in range(10)]
    ids = [world.rows.cron("0 12 * * *", ZONE, paused=n < 10) for n in range(20)]
    ids += [world.rows.cron("0 12 * * *", ZONE, id=id) for id in beside]
    await world.turn_to(world.minute + 5)
    nodes = [Scheduler(world.settings) for _ in range(2)]
    world.schedulers += nodes
    await asyncio.gather(*(node.open() for node in nodes))
    reports = await asyncio.gather(*(node.zonekeeper.run_once() for node in nodes))
    assert sum(report.schedules for report in reports) == 30
    assert retimes(world, *ids) == [1] * 30
    assert cluster(world) == (TZDATA_VERSION, None)


async def test_a_node_that_died_halfway_is_followed_by_one_that_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(world, tzif(8 * HOUR_S))
    store(world, tzif(HOUR_S), "Europe/Berlin")
    ids = [world.rows.cron(f"{n} 12 * * *", tz) for n in range(10) for tz in (ZONE, "Europe/Berlin")]
    await world.turn_to(world.minute + 5)
    node = await world.scheduler()
    retime, calls = tzdata.retime, 0

    def dies(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise psycopg.OperationalError("the connection is lost")
        return retime(*arguments)

    monkeypatch.setattr(zonekeeper, "CHUNK", 3)
    monkeypatch.setattr(tzdata, "retime", dies)
    with pytest.raises(psycopg.OperationalError):
        await node.zonekeeper.run_once()
    assert sorted(retimes(world, *ids)) == [0] * 14 + [1] * 6
    assert cluster(world) == (TZDATA_VERSION, "2025b")
    again = await world.scheduler(own=False)
    assert (await again.zonekeeper.run_once()).schedules == 14
    assert retimes(world, *ids) == [1] * 20
    assert cluster(world) == (TZDATA_VERSION, None)
    assert stored(world) == {name: zone_data(name) for name in (ZONE, "Europe/Berlin")}


async def test_schedules_move_when_no_older_node_can_plan_any_more(world: World) -> None:
    """One that has not looked since the version moved may plan for as long as its lease is believed."""
    store(world, tzif(8 * HOUR_S))
    id = world.rows.cron("0 12 * * *", ZONE)
    older = await world.scheduler(lease_ttl_s=60.0)  # its duties stand still
    world.rows.sql("update bucketd.cluster set tzdata_version = '2025b', tzdata_from = null")
    node = await world.scheduler(own=False)
    assert await node.zonekeeper.run_once() == Report(more=True)
    assert retimes(world, id) == [0]
    await older.ownership.leave()
    assert (await node.zonekeeper.run_once()).schedules == 1
    assert retimes(world, id) == [1]


async def test_it_waits_a_lease_for_a_node_that_does_not_leave(world: World) -> None:
    store(world, tzif(8 * HOUR_S))
    id = world.rows.cron("0 12 * * *", ZONE)
    await world.scheduler(lease_ttl_s=60.0)
    world.rows.sql("update bucketd.cluster set tzdata_version = '2025b', tzdata_from = null")
    node = await world.scheduler(own=False)
    began = world.rows.now()
    assert await node.zonekeeper.run_once() == Report(more=True)
    await world.turn_to(began + 30.2)  # its own lease is 30 s
    assert (await node.zonekeeper.run_once()).schedules == 1
    assert retimes(world, id) == [1]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2999a", f"expected tzdata 2999a or newer, .* got {TZDATA_VERSION} on this node: upgrade the package tzdata"),
        ("latest", "expected a release of tzdata such as 2026f, got 'latest' in tzdata_version"),
    ],
)
async def test_an_older_node_does_not_start(world: World, version: str, message: str) -> None:
    store(world, None, version=version)
    scheduler = Scheduler(world.settings)
    with pytest.raises(SchemaError, match=message) as caught:
        await scheduler.open()
    await scheduler.close()
    assert caught.value.exit_code == 4
    assert cluster(world) == (version, None)


async def test_a_node_hands_over_when_the_cluster_goes_over_to_newer_data(world: World) -> None:
    scheduler = await world.scheduler(own=False)
    running = asyncio.create_task(scheduler.run())
    await wait_until(lambda: len(scheduler.node.owned) == PARTITIONS, 10, "the node to own everything")
    world.rows.sql("update bucketd.cluster set tzdata_version = '2999a', tzdata_from = %s", TZDATA_VERSION)
    with pytest.raises(SchemaError, match="expected tzdata 2999a or newer"):
        await asyncio.wait_for(running, 10)
    assert [p for p in range(PARTITIONS) if await world.redis.exists(world.keys.lease(p))] == []
    assert cluster(world) == ("2999a", TZDATA_VERSION)


async def test_a_whole_node_moves_them_and_then_goes_on_to_work(world: World) -> None:
    store(world, tzif(8 * HOUR_S))
    id = world.rows.cron("0 12 * * *", ZONE)
    scheduler = await world.scheduler(own=False)
    running = asyncio.create_task(scheduler.run())
    await wait_until(lambda: cluster(world) == (TZDATA_VERSION, None), 20, "the move to be done")
    assert retimes(world, id) == [1]
    assert scheduler.node.counts["retimed"] == 1
    scheduler.node.stop.set()
    await asyncio.wait_for(running, 10)


def _fixed(offset_s: int) -> Any:
    from bucketd.timing.offsets import ZoneOffsets
    from bucketd.timing.zones import zone_of

    offsets = ZoneOffsets(zone_of(tzif(offset_s), ZONE))
    return lambda name: offsets


def test_the_rules_of_this_file_are_in_the_zone() -> None:
    assert '"tz":"Asia/Tokyo"' in parse_cron("0 9 * * *", ZONE)[0].rule()
