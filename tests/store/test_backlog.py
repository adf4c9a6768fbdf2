"""What an owner sees of the queues, and that trimming takes only what runners are done with."""

from typing import Any

from redis.asyncio import Redis

from bucketd.store import backlog
from bucketd.store.backlog import NOTHING, Backlog, parse_id
from bucketd.store.keys import GROUP, SHARDS, Keys

SHARD = 5


async def state(redis: Redis, keys: Keys) -> Backlog:
    found = await backlog.read_all(redis, keys)
    assert len(found) == SHARDS
    assert found[SHARD].crowd == Backlog(NOTHING, NOTHING, None, 0)
    return found[SHARD].main


async def entries(redis: Redis, keys: Keys, count: int) -> list[bytes]:
    found: list[Any] = [await redis.xadd(keys.queues[SHARD], {"m": b"x"}) for _ in range(count)]
    return found


async def stored(redis: Redis, queue: str) -> list[bytes]:
    messages: list[Any] = await redis.xrange(queue) or []
    return [id for id, _ in messages]


async def read(redis: Redis, keys: Keys, count: int) -> None:
    await redis.xreadgroup(GROUP, "one", {keys.queues[SHARD]: ">"}, count=count)


async def test_a_queue_that_does_not_exist_is_clear(redis: Redis, keys: Keys) -> None:
    found = await state(redis, keys)
    assert found == Backlog(NOTHING, NOTHING, None, 0)
    assert found.clear_through(NOTHING)
    assert not found.clear_through((1, 0))


async def test_without_a_group_nothing_is_delivered(redis: Redis, keys: Keys) -> None:
    ids = await entries(redis, keys, 2)
    found = await state(redis, keys)
    assert found.last == parse_id(ids[1])
    assert found.delivered == NOTHING
    assert not found.clear_through(parse_id(ids[0]))
    assert await redis.xlen(keys.queues[SHARD]) == 2, "nothing is trimmed before it was delivered"


async def test_clear_is_delivered_and_acknowledged(redis: Redis, keys: Keys) -> None:
    queue = keys.queues[SHARD]
    await redis.xgroup_create(queue, GROUP, id="0", mkstream=True)
    raws = await entries(redis, keys, 3)
    ids = [parse_id(raw) for raw in raws]
    await read(redis, keys, 2)
    found = await state(redis, keys)
    assert (found.delivered, found.oldest_pending) == (ids[1], ids[0])
    assert not found.clear_through(ids[0])
    await redis.xack(queue, GROUP, raws[0])
    found = await state(redis, keys)
    assert [found.clear_through(id) for id in ids] == [True, False, False]
    await redis.xack(queue, GROUP, raws[1])
    found = await state(redis, keys)
    assert [found.clear_through(id) for id in ids] == [True, True, False], "the third was not delivered yet"
    await read(redis, keys, 1)
    assert not (await state(redis, keys)).clear_through(ids[2])
    await redis.xack(queue, GROUP, raws[2])
    assert (await state(redis, keys)).clear_through(ids[2])


async def test_what_is_acknowledged_and_not_deleted_is_trimmed(redis: Redis, keys: Keys) -> None:
    """A runner that died between XACK and XDEL would fill the queue for ever."""
    queue = keys.queues[SHARD]
    await redis.xgroup_create(queue, GROUP, id="0", mkstream=True)
    raws = await entries(redis, keys, 5)
    await read(redis, keys, 3)
    await redis.xack(queue, GROUP, raws[0])
    await state(redis, keys)
    assert await stored(redis, queue) == raws[1:], "pending and undelivered ones stay"
    await redis.xack(queue, GROUP, raws[1], raws[2])
    await state(redis, keys)
    assert await stored(redis, queue) == raws[3:]
    await read(redis, keys, 9)
    await redis.xack(queue, GROUP, *raws)
    found = await state(redis, keys)
    assert found.last == parse_id(raws[-1])
    assert await redis.xlen(queue) == 0
    assert (await state(redis, keys)).last == parse_id(raws[-1]), "an empty queue knows what was in it"


async def test_the_group_of_somebody_else_holds_nothing_up(redis: Redis, keys: Keys) -> None:
    queue = keys.queues[SHARD]
    for group in ("audit", GROUP):
        await redis.xgroup_create(queue, group, id="0", mkstream=True)
    (raw,) = await entries(redis, keys, 1)
    await read(redis, keys, 1)
    await redis.xack(queue, GROUP, raw)
    assert (await state(redis, keys)).clear_through(parse_id(raw))


def test_ids_compare_as_the_stream_orders_them() -> None:
    assert parse_id(b"9-10") > parse_id("9-9") > parse_id("9") > NOTHING
    assert parse_id("10-0") > parse_id("9-99")
