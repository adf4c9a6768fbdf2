"""How partitions stand in Redis, for those who look from outside: who holds the lease, who plans, what is due and not drained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from redis.asyncio import Redis

from bucketd.store.keys import Keys

LOOK_BACK_MIN = 3  # older buckets are deleted, or belong to nobody


class Stand(NamedTuple):
    """Holder of the lease and how long it has left (ms), the fence's epoch, its token, and how often that owner has planned. None and 0:
    there is no lease, no fence."""

    holder: str | None
    lease_ms: int
    epoch: int
    planner: str | None
    plan_seq: int


async def stands(redis: Redis, keys: Keys, partitions: Iterable[int]) -> dict[int, Stand]:
    """Of these partitions."""
    wanted = list(partitions)
    pipeline = redis.pipeline(transaction=False)
    for partition in wanted:
        pipeline.get(keys.lease(partition))
        pipeline.pttl(keys.lease(partition))
        pipeline.hmget(keys.fence(partition), "epoch", "token", "plan_seq")
    answers = await pipeline.execute()
    found = {}
    for place, partition in enumerate(wanted):
        holder, left_ms, (epoch, token, plan_seq) = answers[3 * place : 3 * place + 3]
        found[partition] = Stand(
            holder.decode() if holder else None, max(0, left_ms), int(epoch or 0), token.decode() if token else None, int(plan_seq or 0)
        )  # fmt: skip
    return found


async def undrained(redis: Redis, keys: Keys, partitions: Iterable[int], until_s: float) -> dict[int, int]:
    """Fires that were due at `until_s` (epoch seconds) and are still in their buckets, of each of these partitions."""
    minute = int(until_s) // 60
    looks = [
        (partition, keys.bucket(partition, minute - back, crowd))
        for partition in partitions
        for back in range(LOOK_BACK_MIN)
        for crowd in (False, True)
    ]
    pipeline = redis.pipeline(transaction=False)
    for _, bucket in looks:
        pipeline.zcount(bucket, "-inf", until_s * 1000)
    found: dict[int, int] = {}
    for (partition, _), count in zip(looks, await pipeline.execute(), strict=True):
        found[partition] = found.get(partition, 0) + count
    return found
