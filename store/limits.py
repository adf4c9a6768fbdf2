"""Places under limits, counted in Redis for the whole cluster: how many runs go on at a target or of a tenant, how many begin a second.

A caller reports all places that it holds each time that it asks for more; what it does not report for LEASE_S is free again. A rate
has a bucket of one second's runs, at least one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
from redis.asyncio import Redis

from bucketd.store import scripts
from bucketd.store.keys import Keys
from bucketd.store.statements import statements

LEASE_S = 10.0


class Limit(NamedTuple):
    """A cap (`size` runs at once) or a rate (`size` runs a second), under a name of its own."""

    name: str
    size: float
    is_rate: bool = False


class Ask(NamedTuple):
    """A wish for `wanted` places, each of which counts under all of these limits."""

    wanted: int
    limits: tuple[Limit, ...]


class Report(NamedTuple):
    """What a caller says. `number` rises with each report, `acked` is the last number that was answered (0: none of late)."""

    caller: str
    number: int
    acked: int
    held: Mapping[Limit, int]  # of caps that are asked for, renewed, given back (0) or looked at; of a rate any number
    asks: Sequence[Ask]


class Places(NamedTuple):
    """The answer: places given for each ask, and how many are left under each limit, for anybody."""

    given: list[int]
    left: dict[Limit, int]


async def report(redis: Redis, keys: Keys, said: Report, *, lease_s: float) -> Places | None:
    """Reports and asks; None: a later report was taken before this one. Raises what redis-py raises; a repeat needs a new number."""
    limits = list(dict.fromkeys([*said.held, *(limit for ask in said.asks for limit in ask.limits)]))
    index = {limit: place for place, limit in enumerate(limits, 1)}
    text = json.dumps(
        {
            "caller": said.caller,
            "report": said.number,
            "acked": said.acked,
            "lease_ms": round(lease_s * 1000),
            "limits": [[limit.size, -1 if limit.is_rate else said.held.get(limit, 0)] for limit in limits],
            "asks": [[ask.wanted, *(index[limit] for limit in ask.limits)] for ask in said.asks],
        }
    )
    names = [keys.limits, keys.limits_of(said.caller), *(keys.limit(limit.name) for limit in limits)]
    state, *numbers = await scripts.run(redis, "limits", names, [text])
    if state:
        return None
    given = numbers[: len(said.asks)]
    return Places(given, dict(zip(limits, numbers[len(given) :], strict=True)))


async def tenant_caps(connection: psycopg.AsyncConnection[Any]) -> dict[str, int]:
    """The caps of the tenants that have one."""
    cursor = await connection.execute(statements("limits")["tenant_caps"])
    return dict(await cursor.fetchall())
