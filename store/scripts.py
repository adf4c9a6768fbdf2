"""Lua scripts: one whole file each in `store/lua/`, run by digest and loaded anew wherever a server has forgotten them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AskError, ClusterError, ConnectionError, NoScriptError, TimeoutError, TryAgainError

from bucketd.store.slots import tag_of

# A node that is away or loads its data, a cluster without a master for the slot, a slot on the move.
PASSING = (ConnectionError, TimeoutError, ClusterError, TryAgainError, AskError)


@cache
def source(name: str) -> tuple[str, str]:
    """(text, SHA-1 digest) of a script."""
    text = (files("bucketd.store") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return text, sha1(text.encode()).hexdigest()


async def run(redis: Redis, name: str, keys: list[str], args: list[Any]) -> Any:
    """Runs one script. Raises what redis-py raises."""
    text, digest = source(name)
    try:
        return await redis.evalsha(digest, len(keys), *keys, *args)
    except NoScriptError:
        return await redis.eval(text, len(keys), *keys, *args)


def raise_unless_passing(answers: Sequence[object]) -> None:
    """Raises the first error that is not in PASSING. Those stand in a pipeline over several masters only, and one that is away is
    no reason to stop the work of the others; where there is one server, the pipeline as a whole raises them."""
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, PASSING):
            raise answer


async def run_many(redis: Redis, name: str, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
    """Runs one script for many key sets in one pipeline; an element is the answer or the exception of that call.

    What a server has forgotten (a restart, a failover, a slot that came from elsewhere) is sent again, the first call of each
    shard with the text: it may be on a node of its own.
    """
    text, digest = source(name)
    pipeline = redis.pipeline(transaction=False)
    for keys, args in calls:
        pipeline.evalsha(digest, len(keys), *keys, *args)
    answers: list[Any] = await pipeline.execute(raise_on_error=False)
    forgotten = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
    if forgotten:
        told: set[str] = set()
        for keys, args in (calls[place] for place in forgotten):
            tag = tag_of(keys[0])
            pipeline.execute_command(*(("EVALSHA", digest) if tag in told else ("EVAL", text)), len(keys), *keys, *args)
            told.add(tag)
        for place, answer in zip(forgotten, await pipeline.execute(raise_on_error=False), strict=True):
            answers[place] = answer
    return answers
