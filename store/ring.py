"""What operators said about the ring: weights, cordons, and moves of partitions. Lost with Redis, like everything in it.

A word is about one incarnation (its id) or about a name (`@name`): that of a machine, a pod or whatever BUCKETD_NODE_NAME says, for
whoever has it now and after a restart. A deploy speaks of ids, so that the next incarnation begins afresh; who looks after a
machine speaks of its name. A word about an id goes with the incarnation; one about a name stays until it is taken back.

What cannot be read is passed over: a slip of an operator must not end every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from uuid import UUID

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from bucketd.store import scripts
from bucketd.store.keys import PARTITIONS, Keys

BY_NAME = "@"  # no host name has it, and no id


@dataclass(frozen=True, slots=True)
class Words:
    """Weights, since when somebody is cordoned (epoch seconds; 0: nobody knows), and who is to own a partition."""

    weights: Mapping[str, float] = field(default_factory=dict)
    cordons: Mapping[str, float] = field(default_factory=dict)
    moves: Mapping[int, str] = field(default_factory=dict)

    def abouts(self) -> set[str]:
        """Everybody that a word is about."""
        return {*self.weights, *self.cordons, *self.moves.values()}


def ask(pipeline: Pipeline, keys: Keys) -> None:
    """Adds the three reads whose answers `understand` takes."""
    for key in (keys.weights, keys.cordons, keys.moves):
        pipeline.hgetall(key)


def understand(weights: Mapping[bytes, bytes], cordons: Mapping[bytes, bytes], moves: Mapping[bytes, bytes]) -> Words:
    """The answers to `ask`."""
    shares = {_text(about): _number(raw) for about, raw in weights.items()}
    places = {_partition(raw): _text(about) for raw, about in moves.items()}
    return Words(
        {about: share for about, share in shares.items() if share is not None},
        {_text(about): _number(raw) or 0.0 for about, raw in cordons.items()},
        {partition: about for partition, about in places.items() if partition is not None},
    )


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _number(raw: bytes) -> float | None:
    try:
        number = float(raw)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _partition(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() and int(raw) < PARTITIONS else None


async def weigh(redis: Redis, keys: Keys, about: str, weight: float) -> None:
    """Sets a weight; 1 is what everybody has without a word."""
    pipeline = redis.pipeline(transaction=False)
    if weight == 1:
        pipeline.hdel(keys.weights, about)
    else:
        pipeline.hset(keys.weights, about, repr(weight))
    await _tell(redis, pipeline, keys)


async def cordon(redis: Redis, keys: Keys, abouts: Iterable[str], now_s: float) -> None:
    """These are to own nothing from now on; who is cordoned already stays so since then."""
    pipeline = redis.pipeline(transaction=False)
    for about in abouts:
        pipeline.hsetnx(keys.cordons, about, f"{now_s:.3f}")
    await _tell(redis, pipeline, keys)


async def uncordon(redis: Redis, keys: Keys, abouts: Iterable[str]) -> int:
    """These may own again; how many were cordoned."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.hdel(keys.cordons, *abouts)
    return int((await _tell(redis, pipeline, keys))[0])


async def move(redis: Redis, keys: Keys, places: Mapping[int, str | None]) -> None:
    """Says who is to own these partitions; None: whoever the ring chooses."""
    if not places:
        return
    pipeline = redis.pipeline(transaction=False)
    pinned: dict[Any, Any] = {str(partition): about for partition, about in places.items() if about is not None}
    free = [str(partition) for partition, about in places.items() if about is None]
    if pinned:
        pipeline.hset(keys.moves, mapping=pinned)
    if free:
        pipeline.hdel(keys.moves, *free)
    await _tell(redis, pipeline, keys)


async def _tell(redis: Redis, pipeline: Pipeline, keys: Keys) -> list[Any]:
    """Sends it, then has every node look at the ring. Two round trips: those of a cluster could hear of it before it is said."""
    answers = await pipeline.execute()
    await redis.publish(keys.ring_changed, b"operator")
    return answers


def forgettable(words: Words, known: Iterable[str]) -> Words:
    """Words about incarnations that are not even in the list of those that were here lately."""
    gone = {about for about in words.abouts().difference(known) if not about.startswith(BY_NAME)}
    return Words(
        {about: share for about, share in words.weights.items() if about in gone},
        {about: since for about, since in words.cordons.items() if about in gone},
        {partition: about for partition, about in words.moves.items() if about in gone},
    )


def forget(pipeline: Pipeline, keys: Keys, words: Words) -> None:
    """Takes words back. Nobody need look: they were about nobody."""
    for key, fields in ((keys.weights, words.weights), (keys.cordons, words.cordons), (keys.moves, words.moves)):
        if fields:
            pipeline.hdel(key, *map(str, fields))


async def begin_rebalancing(redis: Redis, keys: Keys, token: UUID, ttl_s: float) -> bool:
    """Whether this one may move partitions now: one at a time. Renewed by `go_on`."""
    return bool(await redis.set(keys.rebalancing, token.hex, nx=True, px=int(ttl_s * 1000)))


async def go_on(redis: Redis, keys: Keys, token: UUID, ttl_s: float) -> bool:
    """Whether the right to move partitions is still ours, and keeps it for another while."""
    answer: Sequence[int] = await scripts.run(redis, "renew", [keys.rebalancing], [token.hex, int(ttl_s * 1000)])
    return bool(answer[0])


async def end_rebalancing(redis: Redis, keys: Keys, token: UUID) -> None:
    """Gives the right back if it is still ours."""
    await scripts.run(redis, "release", [keys.rebalancing], [token.hex])


async def remember(redis: Redis, keys: Keys, before: Mapping[int, str | None]) -> None:
    """Keeps what was said of these partitions, for `remembered`; of one that is kept already nothing newer."""
    pipeline = redis.pipeline(transaction=False)
    for partition, about in before.items():
        pipeline.hsetnx(keys.undo, str(partition), about or "")
    await pipeline.execute()


async def remembered(redis: Redis, keys: Keys) -> dict[int, str | None]:
    """What was said of the partitions that the last rebalancing touched (None: nothing)."""
    found: Mapping[Any, Any] = await redis.hgetall(keys.undo)
    places = {_partition(raw): _text(about) or None for raw, about in found.items()}
    return {partition: about for partition, about in places.items() if partition is not None}


async def forget_undo(redis: Redis, keys: Keys) -> None:
    """There is nothing to undo any more."""
    await redis.delete(keys.undo)
