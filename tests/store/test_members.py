"""Who is in the ring: alive by the cluster's clock, forgotten in time, and what operators said."""

from uuid import uuid4

import pytest
from redis.asyncio import Redis

from bucketd.store import members, ring
from bucketd.store.keys import Keys
from bucketd.store.members import Freed
from bucketd.store.ring import Words

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


async def test_words_of_operators(redis: Redis, keys: Keys) -> None:
    node = uuid4()
    await ring.weigh(redis, keys, "@rack-7", 2.5)
    await ring.weigh(redis, keys, "@rack-8", 1.0)
    await ring.cordon(redis, keys, ["@rack-9", node.hex], NOW)
    await ring.cordon(redis, keys, ["@rack-9"], NOW + 60)
    await ring.move(redis, keys, {3: node.hex, 4: "@rack-7", 5: node.hex})
    await ring.move(redis, keys, {5: None, 6: "@rack-7"})
    words = (await members.beat(redis, keys, node, NOW, 10, {}, name="rack-7")).words
    assert words == Words({"@rack-7": 2.5}, {"@rack-9": NOW, node.hex: NOW}, {3: node.hex, 4: "@rack-7", 6: "@rack-7"})
    assert await ring.uncordon(redis, keys, ["@rack-9", "@rack-10"]) == 1
    assert set((await members.read(redis, keys, NOW)).words.cordons) == {node.hex}


async def test_words_are_heard_at_once(redis: Redis, keys: Keys) -> None:
    said = (
        ring.weigh(redis, keys, "@a", 2.0),
        ring.cordon(redis, keys, ["@a"], NOW),
        ring.uncordon(redis, keys, ["@a"]),
        ring.move(redis, keys, {1: "@a"}),
    )
    async with redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(keys.ring_changed)
        await listener.get_message(timeout=1)
        for word in said:
            await word
            assert await listener.get_message(timeout=1) is not None, word


@pytest.mark.parametrize("weight", ["heavy", "", "nan", "inf", "1e999", b"\xff"])
async def test_what_cannot_be_read_is_passed_over(redis: Redis, keys: Keys, weight: str | bytes) -> None:
    """One slip of an operator must not end every node."""
    node = uuid4()
    await redis.hset(keys.weights, node.hex, weight)
    await redis.hset(keys.cordons, node.hex, weight)
    await redis.hset(keys.moves, mapping={weight: node.hex, "256": node.hex, "-1": node.hex, "7": b"\xff\xfe"})
    words = (await members.beat(redis, keys, node, NOW, 10, {})).words
    assert (words.weights, set(words.moves)) == ({}, {7})
    assert words.cordons == {node.hex: 0.0}, "who was cordoned is, whenever that was"


async def test_a_word_about_an_incarnation_goes_with_it_and_one_about_a_name_stays(redis: Redis, keys: Keys) -> None:
    one, other = uuid4(), uuid4()
    await members.beat(redis, keys, one, NOW, 10, {}, name="rack-7")
    await ring.weigh(redis, keys, one.hex, 2.0)
    await ring.cordon(redis, keys, [one.hex, "@rack-7"], NOW)
    await ring.move(redis, keys, {1: one.hex, 2: "@rack-7"})
    silent = await members.beat(redis, keys, other, NOW + 60, 10, {})
    assert silent.gone == {one.hex: NOW + 10}
    assert (await members.read(redis, keys, NOW)).words == silent.words, "it may only be stopped, and come back"
    await members.beat(redis, keys, other, NOW + 120, 10, {})
    assert (await members.read(redis, keys, NOW)).words == Words({}, {"@rack-7": NOW}, {2: "@rack-7"})


async def test_since_when_a_partition_is_nobodys(redis: Redis, keys: Keys) -> None:
    node = uuid4()
    early, late = Freed(NOW + 0.25, 60.5, 300), Freed(NOW + 1)
    await members.announce(redis, keys, node, {1: early, 2: early})
    await members.leave(redis, keys, node, {4: late})
    assert await members.freed(redis, keys) == {1: early, 2: early, 4: late}
    assert await members.end_of_freedom(redis, keys, [2, 4, 9]) == {2: early, 4: late}
    assert set(await members.freed(redis, keys)) == {1}
