"""How many fires stand in the queues, by two reads of each: every message carries the running count of fires (see drain.lua)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from bucketd.store.keys import SHARDS, Keys


def fires(redis: Redis, keys: Keys) -> int:
    """Fires that were drained and that no runner has acknowledged yet. Raises redis.RedisError."""
    pipeline = redis.pipeline(transaction=False)
    _ask(pipeline, keys)
    return sum(_depths(pipeline.execute()))


async def by_shard(redis: AsyncRedis, keys: Keys) -> list[int]:
    """The same for each shard, the queue of its crowds included. Raises redis.RedisError."""
    pipeline = redis.pipeline(transaction=False)
    _ask(pipeline, keys)
    depths = _depths(await pipeline.execute())
    return [sum(depths[shard::SHARDS]) for shard in range(SHARDS)]


def _ask(pipeline: Any, keys: Keys) -> None:
    for queue in keys.queues:
        pipeline.xrevrange(queue, count=1)
        pipeline.xrange(queue, count=1)


def _depths(answers: Sequence[Any]) -> list[int]:
    return [fires_between(last, first) for last, first in zip(answers[::2], answers[1::2], strict=True)]


def fires_between(last: Any, first: Any) -> int:
    """Fires of a queue by its newest and its oldest message, as XREVRANGE and XRANGE give them with COUNT 1."""
    if not last or not first:
        return 0
    return max(0, _number(last[0][1], b"c") - _number(first[0][1], b"c") + _number(first[0][1], b"n"))


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    """A message of somebody else has no such field; it counts as 0."""
    text = fields.get(name, b"")
    return int(text) if text.isdigit() else 0
