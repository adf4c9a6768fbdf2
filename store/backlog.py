"""The owner's view of the queues: how far runners have come, and the trimming of what they are done with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from redis.asyncio import Redis

from bucketd.store.keys import GROUP, SHARDS, Keys
from bucketd.store.queues import is_missing

EntryId = tuple[int, int]
Ends = tuple[EntryId, EntryId]  # newest ids of the two queues of a shard
NOTHING: EntryId = (0, 0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """One queue: newest id written, newest id delivered, oldest id that was delivered and not acknowledged."""

    last: EntryId
    delivered: EntryId
    oldest_pending: EntryId | None
    messages: int

    def clear_through(self, entry: EntryId) -> bool:
        """Whether every message up to `entry` was delivered and acknowledged."""
        return self.delivered >= entry and (self.oldest_pending is None or self.oldest_pending > entry)


class Shard(NamedTuple):
    """Both queues of a shard."""

    main: Backlog
    crowd: Backlog

    @property
    def last(self) -> Ends:
        """Newest ids written."""
        return (self.main.last, self.crowd.last)

    def clear_through(self, ends: Ends) -> bool:
        """Whether runners are through with every message up to these. A queue that has gone back was lost with Redis's data; what was
        in it is found missing."""
        return all(
            queue.clear_through(end) or queue.last < end for queue, end in zip((self.main, self.crowd), ends, strict=True)
        )


def parse_id(raw: bytes | str) -> EntryId:
    """A stream id as numbers, which compare as the stream orders them."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


async def read_all(redis: Redis, keys: Keys) -> list[Shard]:
    """State of all queues, by shard, trimmed on the way: acknowledged messages that were not deleted would count for ever.

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
    return [Shard(main, crowd) for main, crowd in zip(found[:SHARDS], found[SHARDS:], strict=True)]


async def _read(redis: Redis, keys: Keys) -> list[Backlog]:
    pipeline = redis.pipeline(transaction=False)
    for queue in keys.queues:
        pipeline.xinfo_stream(queue)
        pipeline.xinfo_groups(queue)
        pipeline.xpending(queue, GROUP)
    answers = await pipeline.execute(raise_on_error=False)
    found: list[Backlog] = []
    for place in range(len(keys.queues)):
        stream, groups, pending = answers[3 * place : 3 * place + 3]
        for answer in (stream, groups, pending):
            # An empty queue, or one that no runner has ever looked at. Anything else is no answer, and must not look like that.
            if isinstance(answer, Exception) and not is_missing(answer):
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
