"""Which version of queue messages a node writes: the newest that every living runner reads, whoever comes and goes."""

from typing import Any
from uuid import UUID, uuid4

import msgpack
import psycopg
import pytest

from bucketd.scheduler.node import Scheduler
from bucketd.store import runners
from bucketd.store.fires import MESSAGE_VERSION, decode_message, version_to_write
from tests.scheduler.world import World

NEWER = MESSAGE_VERSION + 1


@pytest.mark.parametrize(
    ("announced", "newest", "written"),
    [(None, 1, 1), (None, 2, 1), (1, 2, 1), (2, 2, 2), (3, 2, 2), (2, 1, 1), (0, 2, 1)],
)
def test_the_newest_that_both_sides_know(announced: int | None, newest: int, written: int) -> None:
    assert version_to_write(announced, newest) == written


async def join(world: World, version: int) -> UUID:
    born = uuid4()
    async with await psycopg.AsyncConnection.connect(
        world.settings.dsn.get_secret_value(), autocommit=True
    ) as connection:
        await runners.join(connection, born, host="test", pid=1, message_version=version)
    return born


async def leave(world: World, runner: UUID) -> None:
    async with await psycopg.AsyncConnection.connect(
        world.settings.dsn.get_secret_value(), autocommit=True
    ) as connection:
        await runners.leave(connection, runner)


async def drained(world: World, scheduler: Scheduler, partition: int) -> list[bytes]:
    """Messages of what is due now, after the node's next look at the cluster."""
    await scheduler.ownership.run_once()
    assert await world.drain(scheduler) > 0
    stream = world.keys.queue(partition)
    entries: Any = await world.redis.xrange(stream)
    found: list[bytes] = [fields[b"m"] for _, fields in entries]
    await world.redis.delete(stream)
    return found


async def test_a_newer_version_is_written_while_all_that_live_read_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETD_TEST_MESSAGE_VERSION", str(NEWER))
    id = world.rows.every(1)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    epoch = scheduler.node.owned[id.bytes[15]].epoch
    versions = []
    older: UUID | None = None
    for second, (joins, leaves) in enumerate(
        [((), False), ((NEWER,), False), ((MESSAGE_VERSION,), False), ((), True)], 1
    ):
        for version in joins:
            born = await join(world, version)
            older = born if version == MESSAGE_VERSION else older
        if leaves and older is not None:
            await leave(world, older)
        await world.turn_to(world.minute + 5 * second)
        messages = await drained(world, scheduler, id.bytes[15])
        assert messages
        for message in messages:
            partition, packed = decode_message(message, newest=NEWER)
            assert partition == id.bytes[15]
            assert packed.startswith(id.bytes)
            version, *_, last = msgpack.unpackb(message, raw=True)
            assert version == MESSAGE_VERSION or last == epoch
        versions.append({msgpack.unpackb(message, raw=True)[0] for message in messages})
    assert versions == [{MESSAGE_VERSION}, {NEWER}, {MESSAGE_VERSION}, {NEWER}]


async def test_a_release_that_knows_no_newer_version_writes_its_own(world: World) -> None:
    id = world.rows.every(1)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await join(world, NEWER)
    await world.turn_to(world.minute + 5)
    assert {decode_message(message)[0] for message in await drained(world, scheduler, id.bytes[15])} == {id.bytes[15]}
