"""The doctor's look into Redis."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from bucketd.cli.checks import Check, fail, ok, skew, warn

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from bucketd.store.config import Settings

MEMORY_WARN = 0.8


def redis_checks(settings: Settings) -> list[Check]:
    """All checks; a single one if it cannot be reached or no address is set."""
    if not settings.redis_url.get_secret_value():
        advice = "set BUCKETD_REDIS_URL; clients do without, schedulers and runners do not"
        return [warn("redis", "no address set", advice)]
    return asyncio.run(_checks(settings))


async def _checks(settings: Settings) -> list[Check]:
    from redis.exceptions import RedisError

    from bucketd.store.config import without_secret
    from bucketd.store.redis_client import address_of, make_redis, servers

    kind = address_of(settings)
    client = make_redis(settings, connections=2)
    try:
        found = [ok("kind of redis", str(kind))]
        for name, server in (await servers(client)).items():
            found += [_of_node(check, name) for check in await _server(server)]
        return [*found, *await _members(client, settings)]
    except (RedisError, OSError) as error:
        shown = without_secret(settings.redis_url.get_secret_value())
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return [fail("redis", "cannot be used", f"{shown}: {first}; check BUCKETD_REDIS_URL and that it runs")]
    finally:
        await client.aclose()


def _of_node(check: Check, node: str) -> Check:
    """A cluster has a line of each kind for each master."""
    return replace(check, name=f"{check.name} ({node})") if node else check


async def _server(client: Redis) -> list[Check]:
    from bucketd.store.redis_client import REDIS_MIN

    info = await client.info()
    version = str(info.get("redis_version", "0"))
    name = str(info.get("server_name", "redis"))
    numbers = tuple(int(part) for part in version.split(".")[:2])
    fit = (
        ok("redis", f"{name} {version}")
        if numbers >= REDIS_MIN
        else fail("redis", version, "expected 6.2 or newer, or Valkey")
    )
    asked_s = time.time()
    seconds, microseconds = await client.time()
    return [
        fit,
        _policy(str(info.get("maxmemory_policy", "unknown"))),
        _memory(info),
        skew("Redis", seconds + microseconds / 1e6, asked_s, time.time()),
    ]


def _policy(policy: str) -> Check:
    if policy == "noeviction":
        return ok("eviction policy", policy)
    advice = "it drops fires silently: `CONFIG SET maxmemory-policy noeviction`, and put it into redis.conf"
    return fail("eviction policy", policy, advice)


def _memory(info: dict[str, object]) -> Check:
    used, limit = int(str(info.get("used_memory", 0))), int(str(info.get("maxmemory", 0)))
    found = f"{used / 2**20:.0f} MiB used of {f'{limit / 2**20:.0f} MiB' if limit else 'what the machine has'}"
    if limit and used > limit * MEMORY_WARN:
        return warn(
            "memory of redis",
            found,
            "raise maxmemory: at the limit writes fail, and fires are late until there is room",
        )
    return ok("memory of redis", found)


async def _members(client: Redis, settings: Settings) -> list[Check]:
    from bucketd.store.keys import Keys

    seconds, microseconds = await client.time()
    alive = await client.zcount(
        Keys(settings.redis_prefix).members, f"({seconds * 1000 + microseconds / 1000:.0f}", "+inf"
    )
    return [
        ok("schedulers", f"{alive} alive")
        if alive
        else warn("schedulers", "none alive", "start one: `bucketd scheduler`")
    ]
