"""Where there is room for more runs, and for which targets and tenants rows wait until there is.

A place is what a run needs to begin soon: under the caps (limits.py), in its host's share of this runner (shares.py) or its batch
target's requests, and in its tenant's share of what waits here. What finds none becomes a row again, and rows are taken by wake as
places come free, the oldest first. While rows wait for a place, newer runs of that key join them: nobody jumps the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import psycopg

from bucketd.runner.batch import BatchCalls
from bucketd.runner.limits import Limits
from bucketd.runner.single import SingleCalls
from bucketd.runner.targets import Targets
from bucketd.store import wake
from bucketd.store.clock import monotonic
from bucketd.store.confirm import NOBODY, Busy
from bucketd.store.results import TARGET_BUSY, TENANT_BUSY
from bucketd.store.runners import CallTarget
from bucketd.store.wake import Room, Woken

MOST_KEYS = 200  # a look; the next one goes on behind them
MOST_OF_BATCH = 1_000  # rows of a batch target at once, if its requests are answered soon
K = TypeVar("K")


class Places:
    """Keys with waiting rows, bounded by what `found` is given and what was turned away since; and the places for them."""

    def __init__(
        self, *, targets: Targets, limits: Limits, single: SingleCalls, batch: Mapping[int, BatchCalls], open_share: int
    ) -> None:
        self._targets = targets
        self._limits = limits
        self._single = single
        self._batch = batch
        self._open_share = open_share
        self._busy_targets: dict[int, None] = {}  # who was given places last stands last
        self._busy_tenants: dict[str, None] = {}
        self._after_target, self._after_tenant = 0, ""

    def __bool__(self) -> bool:
        return bool(self._busy_targets or self._busy_tenants)

    async def find(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Looks for rows that wait for a place. Raises psycopg.Error."""
        revisions = await wake.busy_targets(connection, after=self._after_target, most=MOST_KEYS)
        tenants = await wake.busy_tenants(connection, after=self._after_tenant, most=MOST_KEYS)
        self._after_target = max(revisions) if len(revisions) == MOST_KEYS else 0
        self._after_tenant = tenants[-1] if len(tenants) == MOST_KEYS else ""
        await self._targets.need(revisions)
        self.found(revisions, tenants)

    def found(self, targets: Iterable[int], tenants: Iterable[str]) -> None:
        """Rows wait for these; limits tell from now on what is left for them."""
        self._busy_targets = _in_order(self._busy_targets, targets)
        self._busy_tenants = _in_order(self._busy_tenants, tenants)
        known = [target for key in self._busy_targets if (target := self._targets.get(key)) is not None]
        limits = [limit for target in known for limit in self._limits.of_target(target)]
        self._limits.look(limits + [limit for tenant in self._busy_tenants for limit in self._limits.of_tenant(tenant)])

    def turned_away(self, target_id: int, tenant: str, reason: str) -> None:
        """A run of them waits as a row from now on."""
        if reason == TENANT_BUSY:
            self._busy_tenants[tenant] = None
        else:
            self._busy_targets[target_id] = None

    def waits(self, target: CallTarget, tenant: str) -> str | None:
        """Where rows wait that a new run of this target and tenant must not overtake."""
        if target.target_id in self._busy_targets:
            return TARGET_BUSY
        if tenant not in self._busy_tenants:
            return None
        # Requests of many runs have no part in what a tenant may have waiting here, but in its cap.
        return TENANT_BUSY if target.batch_max <= 1 or self._limits.of_tenant(tenant) else None

    def busy(self) -> Busy:
        """The same for who confirms: such a run becomes a row at once, without being claimed and given back."""
        if not self:
            return NOBODY
        spared = self._targets.of_batches() if self._busy_tenants else ()
        return Busy(list(self._busy_targets), list(self._busy_tenants), spared)

    def of_batch(self, target_id: int) -> int | None:
        """How many more runs the requests of this batch target have room for; None: as many as may come."""
        lane, now = self._batch.get(target_id), monotonic()
        if lane is None or (places := lane.places(now)) is None:
            return None
        slow = sum(lane.open for lane in self._batch.values() if lane.places(now) is not None)
        return min(places, max(0, 2 * self._open_share - slow))

    def room(self, total: int, background: int) -> Room:
        """What may be claimed now: at most half of it for rows that wait for a place, so that others are not kept out by them."""
        left = (total + 1) // 2
        tenants: dict[str, int] = {}
        for tenant in list(self._busy_tenants):
            if places := min(left, self._of_tenant(tenant)):
                tenants[tenant] = places
                left -= places
        return Room(total, background, self._of_targets(left), tenants)

    def _of_tenant(self, tenant: str) -> int:
        limited = self._limits.left(self._limits.of_tenant(tenant))
        room = max(0, self._single.places_of_tenant(tenant, monotonic()))
        return room if limited is None else min(room, limited)

    def _of_targets(self, left: int) -> dict[int, int]:
        found: dict[int, int] = {}
        hosts: dict[str, int] = {}  # what is left of each: targets of a host share it
        for target_id in list(self._busy_targets):
            target = self._targets.get(target_id)
            if target is None:
                continue
            host = self._single.host(target)
            if target.batch_max > 1:
                own = self.of_batch(target_id)
                room = max(target.batch_max, MOST_OF_BATCH) if own is None else own
            else:
                room = hosts.setdefault(host, max(0, self._single.room_of(host, monotonic())))
            limited = self._limits.left(self._limits.of_target(target))
            if places := min(left, room if limited is None else min(room, limited)):
                found[target_id] = places
                left -= places
                hosts[host] = room - places
        return found

    def took(self, room: Room, rows: Iterable[Woken]) -> None:
        """These rows were taken into that room: where fewer came than had a place, none waits. Others come first next time."""
        taken = list(rows)
        for target_id, places in room.targets.items():
            came = sum(row.queue == "target" and row.target_id == target_id for row in taken)
            self._busy_targets.pop(target_id, None)
            if came >= places:
                self._busy_targets[target_id] = None
        for tenant, places in room.tenants.items():
            came = sum(row.queue == "tenant" and row.tenant == tenant for row in taken)
            self._busy_tenants.pop(tenant, None)
            if came >= places:
                self._busy_tenants[tenant] = None


def _in_order(before: dict[K, None], found: Iterable[K]) -> dict[K, None]:
    now = dict.fromkeys(found)
    return {key: None for key in before if key in now} | now
