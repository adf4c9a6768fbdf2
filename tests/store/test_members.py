"""Who is in the ring: alive by the cluster's clock, forgotten in time, and not brought down by a weight that is none."""

from uuid import uuid4

import pytest
from redis.asyncio import Redis

from bucketd.store import members
from bucketd.store.keys import Keys

NOW = 1_800_000_000.0


async def test_nodes_are_alive_for_their_time_to_live(redis: Redis, keys: Keys) -> None:
    one, other = uuid4(), uuid4()
    assert (await members.beat(redis, keys, one, NOW, 10, {"pid": 1})).nodes == (one.hex,)
    found = await members.beat(redis, keys, other, NOW + 5, 10, {"pid": 2})
    assert found.nodes == tuple(sorted([one.hex, other.hex]))
    assert {name: info["pid"] for name, info in (await members.infos(redis, keys)).items()} == {
        one.hex: 1,
        other.hex: 2,
    }
    assert (await members.beat(redis, keys, other, NOW + 11, 10, {"pid": 2})).nodes == (other.hex,)
    assert set(await members.infos(redis, keys)) == {other.hex}, "what a dead node said goes with it"


async def test_leaving_is_at_once_and_heard(redis: Redis, keys: Keys) -> None:
    one, other = uuid4(), uuid4()
    await members.beat(redis, keys, one, NOW, 10, {})
    async with redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(keys.ring_changed)
        await listener.get_message(timeout=1)
        await members.leave(redis, keys, one)
        message = await listener.get_message(timeout=1)
    assert message is not None
    assert message["data"] == one.hex.encode()
    assert (await members.beat(redis, keys, other, NOW, 10, {})).nodes == (other.hex,)


async def test_weights_of_operators(redis: Redis, keys: Keys) -> None:
    node = uuid4()
    await redis.hset(keys.weights, mapping={node.hex: "2.5", "gone": "0"})
    assert (await members.beat(redis, keys, node, NOW, 10, {})).weights == {node.hex: 2.5, "gone": 0.0}


@pytest.mark.parametrize("weight", ["heavy", "", "nan", "inf", "1e999"])
async def test_a_weight_that_is_none_counts_as_one(redis: Redis, keys: Keys, weight: str) -> None:
    """One slip of an operator must not end every node."""
    node = uuid4()
    await redis.hset(keys.weights, node.hex, weight)
    assert (await members.beat(redis, keys, node, NOW, 10, {})).weights == {}
