"""Draining: a node is cordoned, and hands over what it owns; then it can be stopped, and nobody waits for a lease to expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bucketd.ring.access import Access
from bucketd.ring.who import Meant
from bucketd.scheduler.ring import weights
from bucketd.store import observed
from bucketd.store import ring as words
from bucketd.store.errors import Conflict
from bucketd.store.keys import PARTITIONS
from bucketd.store.members import Members

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Drained:
    """How it ended: partitions that the node had, that it still has, and that nobody has."""

    had: int
    left: int
    unowned: int

    @property
    def over(self) -> bool:
        """Whether the node owns nothing, and others own all of it."""
        return not self.left and not self.unowned


def others(ring: Members, meant: Meant) -> list[str]:
    """Living nodes that may own something once `meant` is cordoned."""
    return [node for node, weight in weights(ring).items() if weight > 0 and node not in meant.nodes]


async def drain(
    stores: Access, meant: Meant, *, timeout_s: float, force: bool, report: Callable[[int, int], None]
) -> Drained:
    """Cordons, and waits until all partitions are with others, at most `timeout_s`. Raises Conflict if there are no others.

    `force`: also then; nobody owns the partitions afterwards. The cordon stays: that of an incarnation for as long as it lives.
    """
    ring = await stores.members()
    if not force and not others(ring, meant):
        raise Conflict(
            f"no other node may own the partitions of {meant}: expected one that is alive and not cordoned; nothing was changed"
        )
    before = await _holders(stores)
    ours = {partition for partition, node in before.items() if node in meant.nodes}
    await words.cordon(stores.redis, stores.keys, [meant.about], stores.clock.now())
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while True:
        late = loop.time() >= end
        now = await _holders(stores)
        left = sum(node in meant.nodes for node in now.values())
        found = Drained(len(ours), left, 0 if force else sum(now[partition] is None for partition in ours))
        report(found.had - found.left - found.unowned, found.had)
        if found.over or late:
            return found
        await asyncio.sleep(POLL_S)


async def _holders(stores: Access) -> dict[int, str | None]:
    stands = await observed.stands(stores.redis, stores.keys, range(PARTITIONS))
    return {partition: stand.holder for partition, stand in stands.items()}
