"""Leases and fences of partitions in Redis. The lease is an optimisation; the epoch behind the fence is what is safe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from redis.asyncio import Redis

from bucketd.store import scripts
from bucketd.store.keys import Keys, shard_of

LONGEST_TTL_MS = 61_000  # settings allow a lease of 60 s


async def take(redis: Redis, keys: Keys, partitions: Iterable[int], token: UUID, ttl_s: float) -> list[int]:
    """Tries to lease partitions that nobody holds; returns those that are ours now.

    A lease that lasts longer than any is given for belongs to a Redis whose clock was set back: it is cut to `ttl_s`. Whoever holds it
    and lives renews it in time; a dead holder's would keep the partition from everybody for as long as the clock went back.
    """
    wanted, ttl_ms = list(partitions), int(ttl_s * 1000)
    pipeline = redis.pipeline(transaction=False)
    for partition in wanted:
        pipeline.set(keys.lease(partition), token.hex, nx=True, px=ttl_ms)
        pipeline.pttl(keys.lease(partition))
    answers = await pipeline.execute()
    endless = [partition for partition, left_ms in zip(wanted, answers[1::2], strict=True) if left_ms > LONGEST_TTL_MS]
    if endless:
        for partition in endless:
            pipeline.pexpire(keys.lease(partition), ttl_ms)
        await pipeline.execute()
    return [partition for partition, taken in zip(wanted, answers[::2], strict=True) if taken]


class Renewal(NamedTuple):
    """Partitions that are NOT ours any more, and those of which nothing is known: the master of their shard did not answer."""

    lost: list[int]
    unknown: list[int]


async def renew(redis: Redis, keys: Keys, partitions: Iterable[int], token: UUID, ttl_s: float) -> Renewal:
    """Renews leases, one script a shard. What a master of several does not answer is unknown, no error."""
    groups = _by_shard(partitions)
    calls = [([keys.lease(p) for p in group], [token.hex, int(ttl_s * 1000)]) for group in groups]
    answers = await scripts.run_many(redis, "renew", calls)
    scripts.raise_unless_passing(answers)
    found = Renewal([], [])
    for group, answer in zip(groups, answers, strict=True):
        if isinstance(answer, Exception):
            found.unknown.extend(group)
        else:
            found.lost.extend(partition for partition, kept in zip(group, answer, strict=True) if not kept)
    return found


async def release(redis: Redis, keys: Keys, partitions: Iterable[int], token: UUID) -> None:
    """Gives leases back, so that the next owner need not wait for them to expire."""
    calls = [([keys.lease(p) for p in group], [token.hex]) for group in _by_shard(partitions)]
    for answer in await scripts.run_many(redis, "release", calls):
        if isinstance(answer, Exception):
            raise answer


class Standing(NamedTuple):
    """What stands at a fence: the last owner's epoch, and how many of its plans Redis has acknowledged."""

    epoch: int
    plan_seq: int


async def fences(redis: Redis, keys: Keys, partitions: Iterable[int]) -> dict[int, Standing | None]:
    """What stands at the fence of each partition; None: no fence, so Redis is new or lost data."""
    wanted = list(partitions)
    pipeline = redis.pipeline(transaction=False)
    for partition in wanted:
        pipeline.hmget(keys.fence(partition), "epoch", "plan_seq")
    answers = await pipeline.execute()
    return {
        partition: None if epoch is None else Standing(int(epoch), int(plan_seq or 0))
        for partition, (epoch, plan_seq) in zip(wanted, answers, strict=True)
    }


async def raise_fences(redis: Redis, keys: Keys, epochs: Mapping[int, int], token: UUID) -> list[int]:
    """Puts our epochs at the fences; returns the partitions where a newer epoch stood, which are not ours."""
    calls = [([keys.fence(partition)], [epoch, token.hex]) for partition, epoch in epochs.items()]
    refused: list[int] = []
    for partition, answer in zip(epochs, await scripts.run_many(redis, "fence", calls), strict=True):
        if isinstance(answer, Exception):
            raise answer
        if not answer:
            refused.append(partition)
    return refused


def _by_shard(partitions: Iterable[int]) -> list[list[int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for partition in partitions:
        groups[shard_of(partition)].append(partition)
    return list(groups.values())
