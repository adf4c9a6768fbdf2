"""Moves of partitions, applied in steps: so many at a time, and the next ones when their new owners work on these.

A partition has arrived when its new owner holds the lease, has planned under its own epoch, and has left nothing in a bucket that was
due two seconds ago. If some have not within `timeout_s`, what was said of those is put back as it was and the rest is left
undone: a node that is told to own what it cannot take would leave them to nobody. Told to stop, it ends with the step.

One process moves partitions at a time; its right to do so ends by itself if it dies. What was said before is kept in Redis for an undo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

from bucketd.ring.access import Access
from bucketd.scheduler.ring import address, assign, moves, owners, weights
from bucketd.store import observed
from bucketd.store import ring as words
from bucketd.store.errors import Conflict
from bucketd.store.keys import PARTITIONS, shard_of
from bucketd.store.members import Members
from bucketd.store.observed import Stand

POLL_S = 0.1
RIGHT_S = 30.0  # for which the right to move partitions outlives its holder
DRAINED_WITHIN_S = 2.0


class Placement(NamedTuple):
    """A partition, what is to be said of it (None: nothing, the ring decides), and the node that is then its owner."""

    partition: int
    about: str | None
    target: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done and what was not. `problem`: why it ended early, for people; None with something left: it was told to stop."""

    done: tuple[Placement, ...]
    left: tuple[Placement, ...]
    problem: str | None = None


Report = Callable[[int, int], None]  # (partitions that have arrived, all)


def placements(ring: Members, targets: Mapping[int, str]) -> list[Placement]:
    """How to make these nodes the owners: with a word about each, or by taking one back where the ring itself would choose the node."""
    by_itself = assign(ring.nodes, weights(ring))
    return [
        Placement(p, None if by_itself.get(p) == node else address(ring, node), node) for p, node in targets.items()
    ]


def restored(ring: Members, before: Mapping[int, str | None]) -> list[Placement]:
    """How to say again what was said `before`; without those that nobody could own."""
    kept = {p: about for p, about in ring.words.moves.items() if p not in before}
    said = kept | {p: about for p, about in before.items() if about is not None}
    then = owners(Members(ring.nodes, ring.names, words.Words(ring.words.weights, ring.words.cordons, said)))
    return [Placement(p, about, then[p]) for p, about in before.items() if p in then]


@dataclass(frozen=True, slots=True)
class Mover:
    """Applies placements; a step has `timeout_s`. `undo`: what was said before is kept, in place of what was kept last time."""

    stores: Access
    report: Report
    stop: asyncio.Event
    step: int = PARTITIONS
    timeout_s: float = 30.0
    undo: bool = False
    _token: UUID = field(default_factory=uuid4)

    async def place(self, wanted: Sequence[Placement]) -> Outcome:
        """In their order. Raises Conflict if another process moves partitions, and what the stores raise."""
        redis, keys = self.stores.redis, self.stores.keys
        if not await words.begin_rebalancing(redis, keys, self._token, RIGHT_S):
            raise Conflict("another process moves partitions just now: expected one at a time; nothing was changed")
        try:
            if self.undo and wanted:
                await words.forget_undo(redis, keys)
            return await self._all(wanted)
        finally:
            await words.end_rebalancing(redis, keys, self._token)

    async def _all(self, wanted: Sequence[Placement]) -> Outcome:
        done = 0
        while done < len(wanted) and not self.stop.is_set():
            now = wanted[done : done + self.step]
            if problem := await self._step(now, partial(self._arrived, done, len(wanted))):
                return Outcome(tuple(wanted[:done]), tuple(wanted[done:]), problem)
            done += len(now)
        return Outcome(tuple(wanted[:done]), tuple(wanted[done:]))

    def _arrived(self, before: int, total: int, arrived: int) -> None:
        self.report(before + arrived, total)

    async def _step(self, wanted: Sequence[Placement], report: Callable[[int], None]) -> str | None:
        """One step; why not, if it did not come to its end."""
        redis, keys = self.stores.redis, self.stores.keys
        ring = await self.stores.members()
        for placement in wanted:
            if _owner_by(ring, placement) != placement.target:
                return f"node {placement.target[:8]} is not alive, or is cordoned, or the ring changed: look again"
        before = {p.partition: ring.words.moves.get(p.partition) for p in wanted}
        if self.undo:
            await words.remember(redis, keys, before)
        await words.move(redis, keys, {p.partition: p.about for p in wanted})
        missing = await self._wait(wanted, report)
        if not missing:
            return None
        await words.move(redis, keys, {partition: before[partition] for partition in missing})
        partition, why = next(iter(missing.items()))
        others = f" ({len(missing)} of {len(wanted)} have not)" if len(missing) > 1 else ""
        within = f"within {self.timeout_s:g} s{others}"
        return f"partition {partition} has not arrived {within}: {why}; put back what was said of it"

    async def _wait(self, wanted: Sequence[Placement], report: Callable[[int], None]) -> dict[int, str]:
        """Waits until all have arrived, at most `timeout_s`; those that have not, and why."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.timeout_s
        while True:
            late = loop.time() >= end
            if not await words.go_on(self.stores.redis, self.stores.keys, self._token, RIGHT_S):
                raise Conflict("another process moves partitions: this one was away for too long, and has stopped")
            missing = await absent(self.stores, wanted)
            report(len(wanted) - len(missing))
            if not missing or late:
                return missing
            await asyncio.sleep(POLL_S)


def _owner_by(ring: Members, placement: Placement) -> str | None:
    """Who would own the partition once the placement is said."""
    if placement.about is None:
        return assign(ring.nodes, weights(ring)).get(placement.partition)
    said = words.Words(ring.words.weights, ring.words.cordons, {placement.partition: placement.about})
    return moves(Members(ring.nodes, ring.names, said)).get(placement.partition)


async def absent(stores: Access, wanted: Sequence[Placement]) -> dict[int, str]:
    """Which of these have not arrived, and why."""
    partitions = [placement.partition for placement in wanted]
    stands = await observed.stands(stores.redis, stores.keys, partitions)
    until_s = await stores.now_s() - DRAINED_WITHIN_S
    undrained = await observed.undrained(stores.redis, stores.keys, partitions, until_s)
    found = {p.partition: lacking(p, stands[p.partition], undrained[p.partition]) for p in wanted}
    return {partition: why for partition, why in found.items() if why}


def lacking(placement: Placement, stand: Stand, undrained: int) -> str | None:
    """What a partition lacks of having arrived; None: nothing."""
    target = placement.target[:8]
    if stand.holder is None:
        return f"nobody holds its lease, expected node {target}"
    if stand.holder != placement.target:
        return f"node {stand.holder[:8]} still holds its lease, expected node {target}"
    if stand.planner != placement.target or stand.plan_seq == 0:
        return f"node {target} has taken it and has not planned yet"
    if undrained:
        shard = shard_of(placement.partition)
        return f"{undrained:,} fires of it are due and not drained; is the queue of shard {shard} full?"
    return None
