"""All that bucketd does in Redis, once: for servers, logins and ways there that are not the usual ones."""

from uuid import UUID, uuid4

from redis.asyncio import Redis

from bucketd.store import buckets, depth, leases, limits, members, observed, queues, ring, scripts
from bucketd.store.backlog import read_all
from bucketd.store.buckets import BucketId, Fence
from bucketd.store.keys import Keys
from bucketd.store.members import Freed
from bucketd.store.ring import Words
from tests.support.waiting import wait_until


async def everything(redis: Redis, keys: Keys) -> None:
    """A little of each thing that bucketd does in Redis."""
    token = await _ring(redis, keys)
    fence = Fence(3, 5, token, 1)
    await scripts.run(redis, "fence", [keys.fence(3)], [5, token])
    await buckets.add(redis, keys, {BucketId(3, 1): [60_000, b"f" * 33]})
    await buckets.mark(redis, keys, [fence], compare=True)
    await queues.make_groups(redis, keys.queues)
    drained = await buckets.drain(redis, keys, [(fence, BucketId(3, 1))], 60_000, batch=9, queue_cap=99, compare=True)
    assert [one.fires for one in drained] == [1]
    (entry,) = await queues.read(redis, "me", [keys.queue(3)], count=1, block_ms=100)
    await queues.reclaim(redis, "me", keys.queues, idle_ms=0, count=1)
    await queues.let_go(redis, "me", {entry.stream: [entry.entry_id]}, idle_ms=1)
    await queues.acknowledge(redis, {entry.stream: [entry.entry_id]})
    await queues.remove_consumer(redis, "me", keys.queues)
    await read_all(redis, keys)
    await buckets.delete(redis, keys, [BucketId(3, 1)])


async def _ring(redis: Redis, keys: Keys) -> str:
    me = uuid4()
    await members.beat(redis, keys, me, 100.0, 10.0, {"pid": 1})
    assert await leases.take(redis, keys, [3], me, 10) == [3]
    assert await leases.renew(redis, keys, [3], me, 10) == ([], [])
    await leases.release(redis, keys, [3], me)
    said = limits.Report("me", 1, 0, {}, [limits.Ask(1, (limits.Limit("cap", 5),))])
    assert await limits.report(redis, keys, said, lease_s=1) is not None
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.nudge)
        await redis.publish(keys.nudge, b"")
        await wait_until(lambda: pubsub.get_message(timeout=1), 5, "the nudge")
    await _steer(redis, keys, me)
    await members.leave(redis, keys, me, {3: Freed(100.0)})
    assert await members.end_of_freedom(redis, keys, [3, 4]) == {3: Freed(100.0)}
    return me.hex


async def _steer(redis: Redis, keys: Keys, me: UUID) -> None:
    """What operators do."""
    await ring.weigh(redis, keys, me.hex, 2.0)
    await ring.cordon(redis, keys, [me.hex], 100.0)
    await ring.move(redis, keys, {3: me.hex, 4: None})
    assert (await members.read(redis, keys, 100.0)).words == Words({me.hex: 2.0}, {me.hex: 100.0}, {3: me.hex})
    assert await ring.begin_rebalancing(redis, keys, me, 10)
    assert await ring.go_on(redis, keys, me, 10)
    await ring.end_rebalancing(redis, keys, me)
    await ring.remember(redis, keys, {3: None, 4: "@other"})
    assert await ring.remembered(redis, keys) == {3: None, 4: "@other"}
    assert {stand.holder for stand in (await observed.stands(redis, keys, range(32))).values()} == {None}
    assert sum((await observed.undrained(redis, keys, range(32), 100.0)).values()) == 0
    assert sum(await depth.by_shard(redis, keys)) == 0
