"""Who is in the ring: scheduler nodes that said so lately, what operators said about them, and what each wants known about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import msgpack
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from bucketd.store import ring
from bucketd.store.keys import Keys
from bucketd.store.ring import Words


@dataclass(frozen=True, slots=True)
class Members:
    """Nodes that are alive by the cluster's clock, their names, what operators said, and who was here lately: node -> when it was
    believed gone, epoch seconds."""

    nodes: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    words: Words = field(default_factory=Words)
    gone: Mapping[str, float] = field(default_factory=dict)


class Freed(NamedTuple):
    """A partition that was given up: when (epoch seconds), and what its owner had measured: fires a minute, for how many seconds."""

    since_s: float
    per_min: float = 0.0
    measured_s: int = 0


NOTHING: Mapping[int, Freed] = {}


async def beat(
    redis: Redis, keys: Keys, node: UUID, now_s: float, ttl_s: float, info: dict[str, Any], *, name: str = ""
) -> Members:
    """Says that `node` is alive for `ttl_s`, forgets who is long gone and what was said of him, and reads the ring; one round trip.

    `name`: what operators call the node, and its next incarnation too.
    """
    pipeline = redis.pipeline(transaction=False)
    pipeline.zadd(keys.members, {node.hex: (now_s + ttl_s) * 1000})
    pipeline.zremrangebyscore(keys.members, "-inf", (now_s - 10 * ttl_s) * 1000)
    pipeline.hset(keys.member_info, node.hex, msgpack.packb(info))
    pipeline.hset(keys.names, node.hex, name)
    pipeline.hkeys(keys.member_info)
    _ask(pipeline, keys)
    *_, informed, listed, names, weights, cordons, moves = await pipeline.execute()
    found = _members(now_s, listed, names, ring.understand(weights, cordons, moves))
    await _forget(redis, keys, found, [name.decode() for name in (*informed, *names)])
    return found


async def read(redis: Redis, keys: Keys, now_s: float) -> Members:
    """Reads the ring."""
    pipeline = redis.pipeline(transaction=False)
    _ask(pipeline, keys)
    listed, names, weights, cordons, moves = await pipeline.execute()
    return _members(now_s, listed, names, ring.understand(weights, cordons, moves))


def _ask(pipeline: Pipeline, keys: Keys) -> None:
    pipeline.zrange(keys.members, 0, -1, withscores=True)
    pipeline.hgetall(keys.names)
    ring.ask(pipeline, keys)


def _members(now_s: float, listed: list[tuple[bytes, float]], names: Mapping[bytes, bytes], words: Words) -> Members:
    until_s = {node.decode(): until_ms / 1000 for node, until_ms in listed}
    nodes = tuple(sorted(node for node, until in until_s.items() if until > now_s))
    called = {node.decode(): name.decode() for node, name in names.items()}
    return Members(
        nodes,
        {node: called[node] for node in nodes if called.get(node)},
        words,
        {node: until for node, until in until_s.items() if until <= now_s},
    )


async def _forget(redis: Redis, keys: Keys, found: Members, told_of: Iterable[str]) -> None:
    """What dead nodes said about themselves, and what was said about those that nobody remembers."""
    silent = set(told_of).difference(found.nodes)
    words = ring.forgettable(found.words, (*found.nodes, *found.gone))
    if not silent and not words.abouts():
        return
    pipeline = redis.pipeline(transaction=False)
    if silent:
        pipeline.hdel(keys.member_info, *silent)
        pipeline.hdel(keys.names, *silent)
    ring.forget(pipeline, keys, words)
    await pipeline.execute()


async def leave(redis: Redis, keys: Keys, node: UUID, freed: Mapping[int, Freed] = NOTHING) -> None:
    """Takes a node out of the ring at once and tells the others, and which partitions are nobody's now."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.zrem(keys.members, node.hex)
    pipeline.hdel(keys.member_info, node.hex)
    pipeline.hdel(keys.names, node.hex)
    await pipeline.execute()
    await announce(redis, keys, node, freed)


async def announce(redis: Redis, keys: Keys, node: UUID, freed: Mapping[int, Freed] = NOTHING) -> None:
    """Tells the others to look at the ring now, and which partitions are nobody's now.

    What they are to see is written first: in a cluster one pipeline goes to several servers, and the news could come before it.
    """
    if freed:
        said: dict[Any, Any] = {partition: msgpack.packb(one) for partition, one in freed.items()}
        await redis.hset(keys.freed, mapping=said)
    await redis.publish(keys.ring_changed, node.hex)


async def end_of_freedom(redis: Redis, keys: Keys, partitions: Iterable[int]) -> dict[int, Freed]:
    """What was said when these partitions, which have an owner again, became nobody's; absent: their owner did not say."""
    taken = [str(partition) for partition in partitions]
    pipeline = redis.pipeline(transaction=False)
    pipeline.hmget(keys.freed, taken)
    pipeline.hdel(keys.freed, *taken)
    said, _ = await pipeline.execute()
    return _freed({partition: raw for partition, raw in zip(taken, said, strict=True) if raw is not None})


async def freed(redis: Redis, keys: Keys) -> dict[int, Freed]:
    """What was said of partitions that are nobody's, by those owners that could."""
    return _freed(await redis.hgetall(keys.freed))


def _freed(said: Mapping[Any, Any]) -> dict[int, Freed]:
    return {int(partition): Freed(*msgpack.unpackb(raw)[:3]) for partition, raw in said.items()}


async def infos(redis: Redis, keys: Keys) -> dict[str, dict[str, Any]]:
    """What each node last said about itself."""
    found = await redis.hgetall(keys.member_info)
    return {name.decode(): msgpack.unpackb(raw) for name, raw in found.items() if isinstance(name, bytes)}
