"""Lua scripts: one whole file each in `store/lua/`, run by digest and loaded anew wherever a server has forgotten them."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError


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


async def run_many(redis: Redis, name: str, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
    """Runs one script for many key sets in one pipeline; an element is the answer or the exception of that call.

    Every script is safe to repeat, so a server that has forgotten it is given the text and the whole round is sent again.
    """
    text, digest = source(name)
    for attempt in range(2):
        pipeline = redis.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.evalsha(digest, len(keys), *keys, *args)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        if attempt or not any(isinstance(answer, NoScriptError) for answer in answers):
            return answers
        await redis.script_load(text)
    raise AssertionError("unreachable: the second round returns")
