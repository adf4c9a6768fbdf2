"""Buckets: the sorted sets of one partition and one minute of due, and the scripts that empty them into the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from redis.asyncio import Redis

from bucketd.store import scripts
from bucketd.store.fires import MESSAGE_VERSION
from bucketd.store.keys import Keys

ZADD_MEMBERS = 1_000  # a command: long enough to be cheap, short enough not to hold Redis up
PIPELINE_MEMBERS = 50_000  # packing a pipeline holds this loop up (50 ms), and with it drains that are due meanwhile
KEEP_S = 900  # a bucket that nobody owns goes by itself


class FenceState(IntEnum):
    """What a fenced script found."""

    HELD = 0
    ZOMBIE = 1  # a newer owner stands at the fence: stop
    LOST = 2  # the fence is missing or older than what we wrote: Redis lost data
    UNKNOWN = 3  # no answer: the master of this shard is away, those of others are not


class Fence(NamedTuple):
    """What an owner compares at each write: its epoch, itself, and how often it has planned under this epoch."""

    partition: int
    epoch: int
    token: str
    plan_seq: int


class BucketId(NamedTuple):
    """One bucket; `crowd`: the one beside it that holds the fires of crowds."""

    partition: int
    minute: int  # since the epoch
    crowd: bool = False


@dataclass(frozen=True, slots=True)
class Drained:
    """Result of one drain: fires moved, when the next one of the bucket is due (ms; None: bucket empty), queue depth."""

    state: FenceState
    fires: int
    next_due_ms: int | None
    queue_fires: int


# flat: [score, member, score, member, ..]
Entries = Mapping[BucketId, Sequence[int | bytes]]


async def add(redis: Redis, keys: Keys, entries: Entries) -> None:
    """Adds fires to buckets. Raises the first error of Redis; the whole call may then be repeated: that changes nothing."""
    pipeline = redis.pipeline(transaction=False)
    waiting = 0
    for bucket, flat in entries.items():
        key = keys.bucket(*bucket)
        for start in range(0, len(flat), 2 * ZADD_MEMBERS):
            pipeline.execute_command("ZADD", key, *flat[start : start + 2 * ZADD_MEMBERS])
        pipeline.expire(key, KEEP_S)
        waiting += len(flat) // 2
        if waiting >= PIPELINE_MEMBERS:
            await pipeline.execute()
            waiting = 0
    await pipeline.execute()


async def mark(redis: Redis, keys: Keys, fences: Sequence[Fence], *, compare: bool) -> list[FenceState]:
    """Writes each owner's plan_seq, once every fire before it was added; returns the state of each fence.

    Raises the first error of Redis; the whole call may then be repeated.
    """
    calls = [([keys.fence(f.partition)], [f.epoch, f.token, f.plan_seq, int(compare)]) for f in fences]
    answers = await scripts.run_many(redis, "mark", calls)
    _raise_first(answers)
    return [FenceState(answer) for answer in answers]


async def drain(
    redis: Redis,
    keys: Keys,
    wanted: Sequence[tuple[Fence, BucketId]],
    now_ms: int,
    *,
    batch: int,
    queue_cap: int,
    compare: bool,
    version: int = MESSAGE_VERSION,
) -> list[Drained]:
    """Drains buckets, each under its fence, one script each in one pipeline, into messages of that version; safe to repeat.

    Raises an error of Redis, but where it is a master of several that is away: then those of its shards are UNKNOWN.
    """
    calls = [
        (
            [keys.fence(f.partition), keys.bucket(*bucket), keys.queue(f.partition, bucket.crowd)],
            [f.epoch, f.token, f.plan_seq, now_ms, batch, queue_cap, f.partition, int(compare), version],
        )
        for f, bucket in wanted
    ]
    answers = await scripts.run_many(redis, "drain", calls)
    scripts.raise_unless_passing(answers)
    return [_drained(answer) for answer in answers]


def _drained(answer: list[int] | Exception) -> Drained:
    if isinstance(answer, Exception):
        return Drained(FenceState.UNKNOWN, 0, None, 0)
    state, fires, next_due, depth = answer
    return Drained(FenceState(state), fires, None if next_due < 0 else next_due, depth)


async def delete(redis: Redis, keys: Keys, buckets: Sequence[BucketId]) -> None:
    """Deletes buckets whose time has passed; settling judges what was left in them. What a master of several does
    not answer to goes by itself."""
    pipeline = redis.pipeline(transaction=False)
    for bucket in buckets:
        pipeline.unlink(keys.bucket(*bucket))
    scripts.raise_unless_passing(await pipeline.execute(raise_on_error=False))


def _raise_first(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
