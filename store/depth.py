"""How many fires stand in the queues, by two reads of each: every message carries the running count of fires (see drain.lua)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis

from bucketd.store.keys import Keys


def fires(redis: Redis, keys: Keys) -> int:
    """Fires that were drained and that no runner has acknowledged yet. Raises redis.RedisError."""
    pipeline = redis.pipeline(transaction=False)
    for queue in keys.queues:
        pipeline.xrevrange(queue, count=1)
        pipeline.xrange(queue, count=1)
    answers: list[Any] = pipeline.execute()
    ends = zip(answers[::2], answers[1::2], strict=True)
    return sum(
        max(0, _number(last[0][1], b"c") - _number(first[0][1], b"c") + _number(first[0][1], b"n"))
        for last, first in ends
        if last and first
    )


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    """A message of somebody else has no such field; it counts as 0."""
    text = fields.get(name, b"")
    return int(text) if text.isdigit() else 0
