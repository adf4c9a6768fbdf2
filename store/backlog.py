"""The owner's view of the queues: how far runners have come, and the trimming of what they are done with."""

from __future__ import annotations

from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bucketd.store.keys import GROUP, SHARDS, Keys

EntryId = tuple[int, int]
NOTHING: EntryId = (0, 0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """One shard's queue: newest id written, newest id delivered, oldest id that was delivered and not acknowledged."""

    last: EntryId
    delivered: EntryId
    oldest_pending: EntryId | None
    messages: int

    def clear_through(self, entry: EntryId) -> bool:
        """Whether every message up to `entry` was delivered and acknowledged."""
        return self.delivered >= entry and (self.oldest_pending is None or self.oldest_pending > entry)


def parse_id(raw: bytes | str) -> EntryId:
    """A stream id as numbers, which compare as the stream orders them."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


async def read_all(redis: Redis, keys: Keys) -> list[Backlog]:
    """State of all queues, trimmed on the way: acknowledged messages that were not deleted would count for ever.

    Trims below the oldest pending or undelivered id as read before, which only ever moves up.
    """
    found = await _read(redis, keys)
    trims = redis.pipeline(transaction=False)
    for queue, state in zip(keys.queues, found, strict=True):
        if state.messages:
            keep = state.oldest_pending or (state.delivered[0], state.delivered[1] + 1)
            trims.xtrim(queue, minid=f"{keep[0]}-{keep[1]}", approximate=False)
    if len(trims):
        await trims.execute()
    return found


async def _read(redis: Redis, keys: Keys) -> list[Backlog]:
    pipeline = redis.pipeline(transaction=False)
    for queue in keys.queues:
        pipeline.xinfo_stream(queue)
        pipeline.xinfo_groups(queue)
        pipeline.xpending(queue, GROUP)
    answers = await pipeline.execute(raise_on_error=False)
    found: list[Backlog] = []
    for shard in range(SHARDS):
        stream, groups, pending = answers[3 * shard : 3 * shard + 3]
        for answer in (stream, groups, pending):
            # No such key, no such group: an empty queue, or one that no runner has ever looked at.
            if isinstance(answer, Exception) and not isinstance(answer, ResponseError):
                raise answer
        if isinstance(stream, Exception):
            found.append(Backlog(NOTHING, NOTHING, None, 0))
            continue
        group = (
            next((g for g in groups if g["name"] in (GROUP, GROUP.encode())), None)
            if isinstance(groups, list)
            else None
        )
        delivered = parse_id(group["last-delivered-id"]) if group else NOTHING
        oldest = pending.get("min") if isinstance(pending, dict) and pending.get("pending") else None
        found.append(
            Backlog(
                parse_id(stream["last-generated-id"]), delivered, parse_id(oldest) if oldest else None, stream["length"]
            )
        )
    return found
