"""Who is in the ring: scheduler nodes that said so lately, their weights, and what each wants known about itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any
from uuid import UUID

import msgpack
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from bucketd.store.keys import Keys


@dataclass(frozen=True, slots=True)
class Members:
    """Nodes that are alive by the cluster's clock, and weights set by operators (missing = 1)."""

    nodes: tuple[str, ...]
    weights: dict[str, float]


async def beat(redis: Redis, keys: Keys, node: UUID, now_s: float, ttl_s: float, info: dict[str, Any]) -> Members:
    """Says that `node` is alive for `ttl_s`, forgets who is long gone, and reads the ring; one round trip."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.zadd(keys.members, {node.hex: (now_s + ttl_s) * 1000})
    pipeline.zremrangebyscore(keys.members, "-inf", (now_s - 10 * ttl_s) * 1000)
    pipeline.hset(keys.member_info, node.hex, msgpack.packb(info))
    _ask(pipeline, keys, now_s)
    pipeline.hkeys(keys.member_info)
    *_, alive, weights, known = await pipeline.execute()
    ring = _members(alive, weights)
    stale = [name for name in known if name.decode() not in ring.nodes]
    if stale:
        await redis.hdel(keys.member_info, *stale)
    return ring


async def read(redis: Redis, keys: Keys, now_s: float) -> Members:
    """Reads the ring."""
    pipeline = redis.pipeline(transaction=False)
    _ask(pipeline, keys, now_s)
    return _members(*await pipeline.execute())


def _ask(pipeline: Pipeline, keys: Keys, now_s: float) -> None:
    pipeline.zrangebyscore(keys.members, f"({now_s * 1000}", "+inf")
    pipeline.hgetall(keys.weights)


def _members(alive: list[bytes], weights: dict[bytes, bytes]) -> Members:
    shares = {name.decode(): _share(raw) for name, raw in weights.items()}
    nodes = tuple(sorted(name.decode() for name in alive))
    return Members(nodes, {name: share for name, share in shares.items() if share is not None})


def _share(raw: bytes) -> float | None:
    """A weight as an operator typed it; None (counts as 1) if it is no number: a slip must not end every node."""
    try:
        share = float(raw)
    except ValueError:
        return None
    return share if isfinite(share) else None


async def leave(redis: Redis, keys: Keys, node: UUID) -> None:
    """Takes a node out of the ring at once and tells the others."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.zrem(keys.members, node.hex)
    pipeline.hdel(keys.member_info, node.hex)
    pipeline.publish(keys.ring_changed, node.hex)
    await pipeline.execute()


async def announce(redis: Redis, keys: Keys, node: UUID) -> None:
    """Tells the others to look at the ring now."""
    await redis.publish(keys.ring_changed, node.hex)


async def infos(redis: Redis, keys: Keys) -> dict[str, dict[str, Any]]:
    """What each node last said about itself."""
    found = await redis.hgetall(keys.member_info)
    return {name.decode(): msgpack.unpackb(raw) for name, raw in found.items() if isinstance(name, bytes)}
