"""Everything that we do in Redis, on a real cluster of three masters; a slot on the move; a master that dies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import RedisError, TryAgainError

from bucketd.cli.checks import Verdict
from bucketd.cli.checks_redis import redis_checks
from bucketd.client.publisher import AsyncPublisher, Publisher
from bucketd.runner.channel import listen
from bucketd.runner.outage import Outage
from bucketd.store import backlog, buckets, depth, leases, members, queues, scripts
from bucketd.store.buckets import BucketId, Fence, FenceState
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.errors import StoreUnavailable, UnfitRedis
from bucketd.store.keys import PARTITIONS, SHARDS, TAGS, Keys, slot
from bucketd.store.redis_client import check_redis, make_redis, servers
from bucketd.store.redis_cluster import ClusterRedis
from bucketd.store.redis_sync import make_sync_redis
from tests.support.redis_cluster import Node, RedisCluster, redis_cluster
from tests.support.waiting import wait_until

MINUTE = 29_000_000
EVERYWHERE = range(SHARDS)  # a partition of each shard


@pytest.fixture(scope="module")
def servers_of_module(servers: Path) -> Iterator[RedisCluster]:
    with redis_cluster(servers / f"cluster-{uuid4().hex[:8]}") as cluster:
        yield cluster


@pytest.fixture
def settings_of_cluster(servers_of_module: RedisCluster) -> Settings:
    return Settings.load({}, redis_url=servers_of_module.url)


@pytest_asyncio.fixture
async def cluster(settings_of_cluster: Settings) -> AsyncIterator[ClusterRedis]:
    """A client that knows the masters as they are before the test."""
    client = make_redis(settings_of_cluster)
    assert isinstance(client, ClusterRedis)
    assert len(await client.masters()) == 3
    yield client
    await client.aclose()


async def drained(redis: Redis, keys: Keys, fences: list[Fence]) -> list[buckets.Drained]:
    wanted = [(fence, BucketId(fence.partition, MINUTE)) for fence in fences]
    return await buckets.drain(redis, keys, wanted, MINUTE * 60_000, batch=10, queue_cap=1_000, compare=True)


async def planned(redis: Redis, keys: Keys) -> list[Fence]:
    """A fire that is due in a partition of each shard, under its fence."""
    token = uuid4()
    assert await leases.raise_fences(redis, keys, dict.fromkeys(EVERYWHERE, 7), token) == []
    fires = {BucketId(p, MINUTE): [MINUTE * 60_000, bytes([p]) * 33] for p in EVERYWHERE}
    await buckets.add(redis, keys, cast("Any", fires))
    fences = [Fence(p, 7, token.hex, 1) for p in EVERYWHERE]
    assert await buckets.mark(redis, keys, fences, compare=True) == [FenceState.HELD] * SHARDS
    return fences


async def test_a_fire_of_each_shard_from_the_bucket_to_the_acknowledgement(cluster: ClusterRedis, keys: Keys) -> None:
    fences = await planned(cluster, keys)
    await queues.make_groups(cluster, keys.queues)
    await queues.make_groups(cluster, keys.queues)
    found = await drained(cluster, keys, fences)
    assert [(one.fires, one.queue_fires) for one in found] == [(1, 1)] * SHARDS
    entries = [
        entry
        for queue in keys.main_queues
        for entry in await queues.read(cluster, "one", [queue], count=5, block_ms=100)
    ]
    assert [entry.stream for entry in entries] == list(keys.main_queues)
    assert all(shard.main.oldest_pending for shard in await backlog.read_all(cluster, keys))
    again = await queues.reclaim(cluster, "two", keys.queues, idle_ms=0, count=5)
    assert sorted(again) == sorted(entries)
    await queues.let_go(cluster, "two", {entry.stream: [entry.entry_id] for entry in entries}, idle_ms=5_000)
    assert await queues.remove_consumer(cluster, "two", keys.queues) == len(keys.queues) - SHARDS, (
        "where none is pending"
    )
    await queues.acknowledge(cluster, {entry.stream: [entry.entry_id] for entry in entries})
    assert {shard.main.messages for shard in await backlog.read_all(cluster, keys)} == {0}
    await buckets.delete(cluster, keys, [BucketId(p, MINUTE) for p in EVERYWHERE])


async def test_leases_fences_and_the_ring(cluster: ClusterRedis, keys: Keys) -> None:
    me, you, all_of_them = uuid4(), uuid4(), list(range(PARTITIONS))
    assert await leases.take(cluster, keys, [3, 4], you, 10) == [3, 4]
    mine = await leases.take(cluster, keys, all_of_them, me, 10)
    assert mine == [p for p in all_of_them if p not in (3, 4)]
    assert sorted((await leases.renew(cluster, keys, all_of_them, me, 10)).lost) == [3, 4]
    await leases.release(cluster, keys, all_of_them, me)
    assert await leases.take(cluster, keys, [3, 5], me, 10) == [5]
    assert await leases.raise_fences(cluster, keys, dict.fromkeys(all_of_them, 9), me) == []
    assert set((await leases.fences(cluster, keys, all_of_them)).values()) == {(9, 0)}
    ring = await members.beat(cluster, keys, me, 100.0, 10.0, {"pid": 1})
    assert ring == await members.read(cluster, keys, 101.0)
    assert ring.nodes == (me.hex,)
    assert await members.infos(cluster, keys) == {me.hex: {"pid": 1}}
    await members.leave(cluster, keys, me)


async def test_each_master_is_told_scripts_that_it_forgot(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    fences = await planned(cluster, keys)
    for number, master in enumerate(servers_of_module.masters()):
        if number:  # one of them remembers
            master.client.script_flush()
    assert [one.fires for one in await drained(cluster, keys, fences)] == [1] * SHARDS
    for master in servers_of_module.masters():
        assert master.client.script_exists(scripts.source("drain")[1]) == [True]
        master.client.script_flush()
    assert await scripts.run(cluster, "fence", [keys.fence(1)], [1, "x"]) == 0


async def test_a_slot_that_moved_is_followed_in_order(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    """The client learned the masters before; it has to be sent on, and to keep the order of what goes to one key."""
    place, key = slot(TAGS[5]), keys.lease(5)
    source, target = servers_of_module.begin_move(place)
    servers_of_module.move_keys(place, source, target)
    servers_of_module.end_move(place, source, target)
    pipeline = cluster.pipeline(transaction=False)
    for number in range(20):
        pipeline.append(key, number % 10)
        pipeline.append(keys.lease(6), number % 10)
    assert (await pipeline.execute())[-2:] == [20, 20]
    assert await cluster.get(key) == b"01234567890123456789"
    assert target.ask("GET", key) == "01234567890123456789"


async def test_a_slot_on_the_move_is_asked_for_in_both_places(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    """ASK, many at once: the word that lets a command in goes by the same connection as the command."""
    place, names = slot(TAGS[9]), [f"{keys.lease(9)}:{n}" for n in range(40)]
    for name in names:
        await cluster.set(name, name)
    source, target = servers_of_module.begin_move(place)
    servers_of_module.move_keys(place, source, target, most=15)
    pipeline = cluster.pipeline(transaction=False)
    for name in names:
        pipeline.get(name)
        pipeline.append(name, "!")
    answers = await pipeline.execute()
    assert answers[::2] == [name.encode() for name in names]
    new = [f"{keys.lease(9)}:new-{n}" for n in range(10)]  # unknown to the source, so they begin at the target
    for name in new:
        await cluster.set(name, "1")
    assert {target.ask("ASKING") and target.ask("GET", name) for name in new} == {"1"}
    servers_of_module.move_keys(place, source, target)
    servers_of_module.end_move(place, source, target)
    assert {await cluster.get(name) for name in names} == {f"{name}!".encode() for name in names}


async def test_a_script_whose_keys_are_apart_fails_alone(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    """TRYAGAIN is an answer of that call; the other shards have theirs, and after the move it works."""
    fences = await planned(cluster, keys)
    await queues.make_groups(cluster, keys.queues)
    place = slot(TAGS[11])
    source, target = servers_of_module.begin_move(place)
    source.ask("MIGRATE", "127.0.0.1", target.port, keys.fence(11), 0, 5000, "AUTH", "of-the-cluster")
    calls: list[tuple[list[str], list[Any]]] = [
        ([keys.fence(p), keys.bucket(p, MINUTE), keys.queue(p)], [7, "x", 1, 0, 1, 1, p, 1]) for p in EVERYWHERE
    ]
    answers = await scripts.run_many(cluster, "drain", calls)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, TryAgainError)] == [11]
    assert all(answer[0] == FenceState.ZOMBIE for place, answer in enumerate(answers) if place != 11)
    servers_of_module.move_keys(place, source, target)
    servers_of_module.end_move(place, source, target)
    assert [one.fires for one in await drained(cluster, keys, fences)] == [1] * SHARDS


async def test_fitness_of_every_master_is_looked_at(
    cluster: ClusterRedis, settings_of_cluster: Settings, servers_of_module: RedisCluster
) -> None:
    await check_redis(cluster, settings_of_cluster)
    wrong = servers_of_module.masters()[2]
    wrong.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnfitRedis, match=rf"node 127\.0\.0\.1:{wrong.port}.*allkeys-lru"):
            await check_redis(cluster, settings_of_cluster)
    finally:
        wrong.client.config_set("maxmemory-policy", "noeviction")


def test_the_doctor_has_a_line_for_every_master(settings_of_cluster: Settings, servers_of_module: RedisCluster) -> None:
    first, *others = redis_checks(settings_of_cluster)
    assert first.found.startswith("Redis Cluster by 127.0.0.1:")
    for node in servers_of_module.masters():
        mine = [check for check in others if f"127.0.0.1:{node.port}" in check.name]
        assert {check.verdict for check in mine} == {Verdict.OK}
        assert {"redis", "eviction policy"} <= {check.name.partition(" (")[0] for check in mine}
    wrong = servers_of_module.masters()[1]
    wrong.client.config_set("maxmemory-policy", "volatile-lru")
    try:
        failed = [check.name for check in redis_checks(settings_of_cluster) if check.verdict is Verdict.FAIL]
    finally:
        wrong.client.config_set("maxmemory-policy", "noeviction")
    assert failed == [f"eviction policy (127.0.0.1:{wrong.port})"]


def test_the_synchronous_client_of_people_s_commands(keys: Keys, settings_of_cluster: Settings) -> None:
    with make_sync_redis(settings_of_cluster) as client:
        for number, queue in enumerate(keys.queues):
            client.xadd(queue, {"m": "x", "c": number + 5, "n": number + 5})
        assert depth.fires(client, keys) == sum(range(5, 5 + len(keys.queues)))
        client.publish(keys.nudge, b"")


async def test_clients_nudge_the_cluster_whichever_kind_they_are(
    cluster: ClusterRedis, keys: Keys, settings_of_cluster: Settings
) -> None:
    told = settings_of_cluster.model_copy(update={"redis_prefix": keys.prefix})
    async with cluster.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.nudge, keys.wake)
        publisher, asynchronous = Publisher(lambda: told), AsyncPublisher(lambda: told)
        publisher.publish(("nudge",))
        first = await wait_until(lambda: pubsub.get_message(timeout=1), 5, "the nudge")
        await asynchronous.publish(("wake",))
        second = await wait_until(lambda: pubsub.get_message(timeout=1), 5, "the word to wake")
        publisher.close()
        await asynchronous.close()
    assert [first["channel"], second["channel"]] == [keys.nudge.encode(), keys.wake.encode()]


async def test_a_server_that_is_no_cluster_is_told_of(redis_url: str) -> None:
    settings = Settings.load({}, redis_url=redis_url.replace("redis://", "redis+cluster://", 1))
    client = make_redis(settings)
    with pytest.raises(StoreUnavailable, match="cluster support disabled"):
        await check_redis(client, settings)
    await client.aclose()


async def test_a_master_that_hangs_is_waited_for_once(
    settings_of_cluster: Settings, keys: Keys, servers_of_module: RedisCluster
) -> None:
    """The first pipeline waits for its time-out; those after it ask the others alone, for a while."""
    hanging = servers_of_module.master(slot(TAGS[4]))
    client = make_redis(settings_of_cluster.model_copy(update={"redis_read_timeout_s": 0.4}))
    assert isinstance(client, ClusterRedis)
    await client.masters()

    async def failing() -> tuple[int, float]:
        pipeline = client.pipeline(transaction=False)
        for p in EVERYWHERE:
            pipeline.get(keys.lease(p))
        begun = monotonic()
        answers = await pipeline.execute(raise_on_error=False)
        return sum(isinstance(answer, RedisError) for answer in answers), monotonic() - begun

    os.kill(hanging.server.pid, signal.SIGSTOP)
    try:
        number, waited_s = await failing()
        assert 0 < number < SHARDS
        assert waited_s >= 0.4
        again, waited_s = await failing()
        assert again == number
        assert waited_s < 0.3
    finally:
        os.kill(hanging.server.pid, signal.SIGCONT)

    async def well() -> bool:
        return (await failing())[0] == 0

    await wait_until(well, 10, "it to be asked again")
    await client.aclose()


async def test_who_listens_hears_again_when_its_node_is_gone(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    heard: list[bytes] = []
    listening = asyncio.create_task(listen(cluster, keys.nudge, heard.append, Outage("test")))

    def listened_at() -> Node | None:
        living = (node for node in servers_of_module.nodes if node.server.running())
        return next((node for node in living if dict(node.client.pubsub_numsub(keys.nudge)).get(keys.nudge)), None)

    async def told() -> bool:
        with suppress(RedisError):
            await cluster.publish(keys.nudge, b"now")
        return bool(heard)

    try:
        node = await wait_until(listened_at, 5, "the subscription")
        assert node is not None
        await wait_until(told, 5, "the first word")
        node.kill9()
        heard.clear()
        await wait_until(told, 10, "a word by another node")
        servers_of_module.restart(node)
        await wait_until(servers_of_module.whole, 15, "it to be back")
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_a_master_dies_and_the_others_go_on(
    cluster: ClusterRedis, keys: Keys, servers_of_module: RedisCluster
) -> None:
    """While it is away its slots have errors and no other has; then its replica is found."""
    dying = servers_of_module.master(slot(TAGS[0]))
    its = {p for p in EVERYWHERE if servers_of_module.master(slot(TAGS[p])) is dying}
    fences = await planned(cluster, keys)
    assert dying.client.wait(1, 2_000) == 1, "the replica has what was planned"
    dying.kill9()

    pipeline = cluster.pipeline(transaction=False)
    for p in EVERYWHERE:
        pipeline.hget(keys.fence(p), "epoch")
    answers = await pipeline.execute(raise_on_error=False)
    assert {p for p, answer in enumerate(answers) if isinstance(answer, RedisError)} == its
    assert {answer for p, answer in enumerate(answers) if p not in its} == {b"7"}
    assert set((await leases.renew(cluster, keys, EVERYWHERE, uuid4(), 10)).unknown) == its
    found = await drained(cluster, keys, fences)
    assert {one.fires for p, one in enumerate(found) if p not in its} == {1}

    async def whole() -> bool:
        try:
            found = await drained(cluster, keys, fences)
        except RedisError:  # for a moment the cluster is down as a whole
            return False
        return all(one.state is FenceState.HELD for one in found)

    await wait_until(whole, 15, "the replica to serve what was its master's")
    assert str(dying.port) not in " ".join(await servers(cluster))
