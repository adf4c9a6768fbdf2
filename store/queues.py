"""The reading side of the queues: one stream a shard, one consumer group, one consumer a runner incarnation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bucketd.store.keys import GROUP
from bucketd.store.redis_cluster import ClusterRedis
from bucketd.store.scripts import raise_unless_passing

FIELD = b"m"


class Entry(NamedTuple):
    """One queue message as it stands in a stream. `raw` is None if the entry has no message field."""

    stream: str
    entry_id: bytes
    raw: bytes | None


def is_no_group(error: ResponseError) -> bool:
    """Whether the stream or its group is gone (a flush, a failover to an older copy): make the groups again and go on."""
    return "NOGROUP" in str(error)


def is_missing(error: Exception) -> bool:
    """Whether there is no such stream, or no such group."""
    return isinstance(error, ResponseError) and (is_no_group(error) or "no such key" in str(error))


def read_together(redis: Redis, streams: Sequence[str]) -> list[tuple[str, ...]]:
    """Which of these streams, one a shard, one blocking read can cover: of one server all of them, of a cluster each alone."""
    return [(stream,) for stream in streams] if isinstance(redis, ClusterRedis) else [tuple(streams)]


async def make_groups(redis: Redis, streams: Sequence[str]) -> None:
    """The consumer group of each stream, from its beginning. Harmless where there is one."""
    pipeline = redis.pipeline(transaction=False)
    for stream in streams:
        pipeline.xgroup_create(stream, GROUP, id="0", mkstream=True)
    for answer in await pipeline.execute(raise_on_error=False):
        if isinstance(answer, Exception) and "BUSYGROUP" not in str(answer):
            raise answer


async def read(redis: Redis, consumer: str, streams: Sequence[str], *, count: int, block_ms: int) -> list[Entry]:
    """Up to `count` new messages of each stream; waits up to `block_ms` while there is none. See `read_together`
    for what they may be."""
    answer = await redis.xreadgroup(GROUP, consumer, dict.fromkeys(streams, ">"), count=count, block=block_ms)
    return _entries(answer)


async def reclaim(redis: Redis, consumer: str, streams: Sequence[str], *, idle_ms: int, count: int) -> list[Entry]:
    """Takes over up to `count` messages of each stream that their consumer has left alone for `idle_ms`.

    Raises an error of Redis, but where it is a master of several that is away.
    """
    pipeline = redis.pipeline(transaction=False)
    for stream in streams:
        pipeline.xautoclaim(stream, GROUP, consumer, idle_ms, count=count)
    answers = await pipeline.execute(raise_on_error=False)
    raise_unless_passing(answers)
    return [
        Entry(stream, entry_id, (fields or {}).get(FIELD))
        for stream, answer in zip(streams, answers, strict=True)
        if not isinstance(answer, Exception)
        for entry_id, fields in answer[1]
        if entry_id is not None
    ]


class Pending(NamedTuple):
    """A message that was delivered and is not acknowledged: with whom it is, since when by Redis's clock, how often it was delivered."""

    stream: str
    entry_id: bytes
    consumer: bytes
    idle_ms: int
    deliveries: int


async def pending(redis: Redis, streams: Sequence[str], *, count: int) -> list[Pending]:
    """The oldest `count` of each stream. Raises an error of Redis, but where it is a master of several that is away."""
    pipeline = redis.pipeline(transaction=False)
    for stream in streams:
        pipeline.xpending_range(stream, GROUP, "-", "+", count)
    answers = await pipeline.execute(raise_on_error=False)
    raise_unless_passing(answers)
    return [
        Pending(stream, one["message_id"], one["consumer"], one["time_since_delivered"], one["times_delivered"])
        for stream, answer in zip(streams, answers, strict=True)
        if not isinstance(answer, Exception)
        for one in answer
    ]


async def redate(redis: Redis, messages: Iterable[Pending]) -> None:
    """Gives these messages their idle time, and leaves them with whom they are; one that is acknowledged by now is left alone."""
    pipeline = redis.pipeline(transaction=False)
    for one in messages:
        pipeline.xclaim(one.stream, GROUP, one.consumer, 0, [one.entry_id], idle=one.idle_ms, justid=True)
    await pipeline.execute()


async def acknowledge(redis: Redis, entries: Mapping[str, Sequence[bytes]]) -> None:
    """Takes these messages (ids by stream) off the pending list and out of the stream. Repeating is harmless."""
    pipeline = redis.pipeline(transaction=False)
    for stream, ids in entries.items():
        pipeline.xack(stream, GROUP, *ids)
        pipeline.xdel(stream, *ids)
    await pipeline.execute()


async def let_go(redis: Redis, consumer: str, entries: Mapping[str, Sequence[bytes]], *, idle_ms: int) -> None:
    """Makes these pending messages look idle for `idle_ms`, so that the next runner that looks takes them over."""
    pipeline = redis.pipeline(transaction=False)
    for stream, ids in entries.items():
        pipeline.xclaim(stream, GROUP, consumer, 0, list(ids), idle=idle_ms, justid=True)
    await pipeline.execute()


async def remove_consumer(redis: Redis, consumer: str, streams: Sequence[str]) -> int:
    """Removes the consumer where nothing is pending with it (elsewhere its messages would be lost); on how many streams."""
    removed = 0
    for stream in streams:
        pending = await redis.xpending_range(stream, GROUP, "-", "+", 1, consumername=consumer)
        if not pending:
            await redis.xgroup_delconsumer(stream, GROUP, consumer)
            removed += 1
    return removed


def _entries(answer: Any) -> list[Entry]:
    """redis-py gives [[stream, [(id, fields), ..]], ..] by RESP2 and {stream: [[(id, fields), ..]]} by RESP3."""
    pairs = answer.items() if isinstance(answer, dict) else answer or ()
    found = []
    for stream, entries in pairs:
        name = stream.decode() if isinstance(stream, bytes) else str(stream)
        rows = entries[0] if entries and isinstance(entries[0], list) else entries
        found += [Entry(name, entry_id, (fields or {}).get(FIELD)) for entry_id, fields in rows]
    return found
