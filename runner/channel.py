"""Hears one pub/sub channel for ever. What is told there is a courtesy: whatever is lost with a dead connection is found by a look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.runner.outage import Outage

LISTEN_S = 5.0  # a read


async def listen(redis: Redis, channel: str, heard: Callable[[bytes], object], outage: Outage) -> None:
    """Calls `heard` with each message; an outage of Redis is noted and survived."""
    while True:
        pubsub = redis.pubsub(ignore_subscribe_messages=True)
        try:
            await pubsub.subscribe(channel)
            while True:
                message = await pubsub.get_message(timeout=LISTEN_S)
                if message is not None:
                    heard(message["data"])
                outage.recovered()
        except (RedisError, OSError) as error:
            await asyncio.sleep(outage.failed(error))
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
