"""Days of runs over time: made ahead, closed with an index, dropped a pass after the floor was raised."""

import asyncio
from datetime import UTC, datetime

import psycopg
import pytest

from bucketd.scheduler import retainer
from bucketd.scheduler.node import Scheduler
from bucketd.store import retention
from tests.scheduler.world import World

DAY_S = 86_400


def days(world: World) -> list[int]:
    """Days that exist, relative to today's first second."""
    today = int(world.rows.now()) // DAY_S * DAY_S
    found = world.rows.sql(
        "select relname from pg_inherits join pg_class on oid = inhrelid where inhparent = 'bucketd.runs'::regclass"
    )
    starts = sorted(datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).timestamp() for (name,) in found)
    return [(int(at) - today) // DAY_S for at in starts]


def floor(world: World) -> int:
    """The retention floor in days, relative to today."""
    at = world.rows.one("select extract(epoch from retention_floor)::bigint from bucketd.cluster")
    return int((at - int(world.rows.now()) // DAY_S * DAY_S) // DAY_S)


def indexed(world: World) -> int:
    """Closed days with a valid index by schedule."""
    return int(
        world.rows.one(
            "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid"
            " where c.relname ~ '^runs_[0-9]{8}_schedule$' and i.indisvalid"
        )
    )


async def later(world: World, by_days: int) -> None:
    await world.turn_to(world.minute + by_days * DAY_S)


@pytest.fixture(name="node")
async def _node(world: World) -> Scheduler:
    return await world.scheduler(own=False, retention_days=3, days_ahead=2)


async def test_days_are_made_ahead(world: World, node: Scheduler) -> None:
    await node.retainer.run_once()
    before = days(world)
    assert set(range(-1, 3)) <= set(before)
    await later(world, 9)
    report = await node.retainer.run_once()
    assert report.made > 0
    assert set(range(-3, 3)) <= set(days(world)), "and none is missing between"


async def test_the_floor_rises_first_and_days_go_a_pass_later(world: World, node: Scheduler) -> None:
    await node.retainer.run_once()
    await later(world, 5)
    expired = [day for day in days(world) if day < -3]
    assert expired
    report = await node.retainer.run_once()
    assert report.dropped == 0
    assert floor(world) == -3
    assert set(expired) <= set(days(world)), "a statement that began under the old floor may still write there"
    report = await node.retainer.run_once()
    assert report.dropped == len(expired)
    assert min(days(world)) == -3
    assert (await node.retainer.run_once()).dropped == 0
    assert world.rows.one("select days_from >= retention_floor from bucketd.cluster")


async def test_a_closed_day_gets_its_index_once(world: World, node: Scheduler) -> None:
    await world.turn_to(int(world.rows.now()) // DAY_S * DAY_S + DAY_S + 1_800)
    await node.retainer.run_once()
    before = indexed(world)
    assert -1 in days(world)
    assert before == len([day for day in days(world) if day < -1]), (
        "a day that ended half an hour ago may still be written"
    )
    await later(world, 2)
    report = await node.retainer.run_once()
    assert report.closed == indexed(world) - before > 0
    assert (await node.retainer.run_once()).closed == 0


async def test_an_index_that_was_broken_off_is_built_again(world: World, node: Scheduler) -> None:
    """`create index concurrently` that is cancelled leaves an invalid one behind, which nobody ever uses."""
    await node.retainer.run_once()
    await later(world, 2)
    await node.retainer.run_once()
    good = indexed(world)
    world.rows.sql(
        "update pg_index set indisvalid = false where indexrelid = (select oid from pg_class"
        " where relname ~ '^runs_[0-9]{8}_schedule$' order by relname limit 1)"
    )
    assert (await node.retainer.run_once()).closed == 1
    assert indexed(world) == good


async def test_a_drop_that_was_broken_off_goes_on(world: World, node: Scheduler) -> None:
    """A detach that runs into its lock time-out leaves the day pending; a second detach of it is refused."""
    await node.retainer.run_once()
    await later(world, 5)
    await node.retainer.run_once()
    dsn = world.settings.dsn.get_secret_value()
    with psycopg.connect(dsn) as reader:
        reader.execute("select count(*) from bucketd.runs")  # an open transaction that has looked at all days
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute("set lock_timeout = 200")
            expired = [day for day in await retention.days(connection) if day.expired]
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await retention.drop(connection, expired[0])
    assert (await node.retainer.run_once()).dropped == len(expired)
    assert min(days(world)) == -3


async def test_a_day_that_was_detached_and_not_dropped_is_dropped(world: World, node: Scheduler) -> None:
    await node.retainer.run_once()
    await later(world, 5)
    await node.retainer.run_once()
    oldest = world.rows.one("select min(relname) from pg_class where relname ~ '^runs_[0-9]{8}$'")
    world.rows.sql(f"alter table bucketd.runs detach partition bucketd.{oldest}")
    await node.retainer.run_once()
    assert world.rows.one("select to_regclass(%s)::text", f"bucketd.{oldest}") is None


async def test_versions_and_one_shots_of_days_that_are_gone_go_too(world: World, node: Scheduler) -> None:
    old, new, edited = world.rows.at(world.minute + 30), world.rows.at(world.minute + 9 * DAY_S), world.rows.every(60)
    world.rows.sql("update bucketd.schedules set phase = 5 where id = %s", edited)
    await later(world, 5)
    world.rows.sql("update bucketd.schedules set phase = 6 where id = %s", edited)
    await node.retainer.run_once()
    await node.retainer.run_once()
    assert {row[0] for row in world.rows.sql("select id from bucketd.schedules")} == {new, edited}
    assert old not in {new, edited}
    assert world.rows.sql("select timing_version from bucketd.schedule_versions") == [(2,)]


async def test_one_node_at_a_time(world: World, node: Scheduler) -> None:
    with psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", (retainer._LOCK,))
        await later(world, 9)
        report = await node.retainer.run_once()
        assert (report.made, report.closed, report.dropped) == (0, 0, 0)
        other.execute("select pg_advisory_unlock_all()")
    assert (await node.retainer.run_once()).made > 0
    both = await asyncio.gather(node.retainer.run_once(), node.retainer.run_once())
    assert sum(report.made for report in both) == 0


async def test_time_outs_are_put_back(world: World, node: Scheduler) -> None:
    await node.retainer.run_once()
    async with node.node.pool.connection() as connection:
        row = await (await connection.execute("show statement_timeout")).fetchone()
    assert row == ("30s",)
