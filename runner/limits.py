"""Places under caps and rates: what is claimed and limited begins when the whole cluster has a place for it, or waits as a row.

Invariant: a cap is never exceeded in the cluster. Only what Redis gave out begins, one report is on its way at a time, each says
what this runner holds in all, and what it holds is renewed until it ends. Redis away: what is limited waits, everything else goes
on; no key is touched for a run without limit. If the process dies, its places are free again after a lease (store/limits.py).
A runner that is cut off from Redis alone for longer than a lease cannot call back what it has begun: until that ends, others may
begin as many in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bucketd.runner.ledger import Ledger
from bucketd.runner.outage import Outage
from bucketd.runner.run import Run
from bucketd.runner.tenants import TenantCaps
from bucketd.store import limits as statement
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import Keys
from bucketd.store.limits import LEASE_S, Ask, Limit, Places, Report
from bucketd.store.results import TARGET_BUSY, TENANT_BUSY
from bucketd.store.runners import CallTarget

LINGER_S = 0.003  # what ends or comes within this time shares a report


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """One report. `placed`: limited runs that may begin; `unplaced`: those that wait as rows."""

    placed: int = 0
    unplaced: int = 0


class Offer(NamedTuple):
    """Runs of one target and tenant that ask for a place each under these limits."""

    since: float
    target: CallTarget
    runs: list[Run]
    limits: tuple[Limit, ...]


class Limits:
    """Asks for places, and hands runs on to `placed`, or with a reason to `unplaced`."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        tenants: TenantCaps,
        *,
        placed: Callable[[CallTarget, list[Run]], None],
        unplaced: Callable[[list[Run], str], None],
        on_left: Callable[[], None],
        stale_s: float,
    ) -> None:
        self._redis = redis
        self._keys = Keys(settings.redis_prefix)
        self._tenants = tenants
        self._placed = placed
        self._unplaced = unplaced
        self._on_left = on_left
        self._stale_s = stale_s
        self._lease_s = LEASE_S
        self._renew_s = LEASE_S / 4
        self._trust_s = LEASE_S / 2  # an answer older than this gives nothing
        self._caller = uuid4().hex
        self._number = 0
        self._acked, self._acked_at = 0, 0.0
        self._ledger = Ledger()
        self._offers: list[Offer] = []  # bounded by admission
        self._looked: tuple[Limit, ...] = ()
        self._left: dict[str, int] = {}
        self._away = False
        self._some = asyncio.Event()
        self._one = asyncio.Lock()
        self._outage = Outage("limits")

    def of(self, target: CallTarget, tenant: str) -> tuple[Limit, ...]:
        """The limits that a run of this target and tenant counts under; mostly none."""
        return self.of_target(target) + self.of_tenant(tenant)

    def of_target(self, target: CallTarget) -> tuple[Limit, ...]:
        cap, rate = target.max_running, target.rate_per_s
        found = () if cap is None else (Limit(f"target:{target.target_id}", cap),)
        return found if rate is None else (*found, Limit(f"rate:{target.target_id}", rate, is_rate=True))

    def of_tenant(self, tenant: str) -> tuple[Limit, ...]:
        cap = self._tenants.caps.get(tenant)
        return () if cap is None else (Limit(f"tenant:{tenant}", cap),)

    def are_on(self, target: CallTarget) -> bool:
        """Whether runs of this target may have a limit at all."""
        return target.max_running is not None or target.rate_per_s is not None or bool(self._tenants.caps)

    def offer(self, target: CallTarget, runs: list[Run], limits: tuple[Limit, ...]) -> None:
        """These runs want a place each; the answer comes by `placed` and `unplaced`, soon."""
        if self._away:
            self._refuse(runs, limits)
            return
        for limit in limits:
            self._left[limit.name] = self._left.get(limit.name, 0) - len(runs)
        self._offers.append(Offer(monotonic(), target, runs, limits))
        self._some.set()

    def ended(self, runs: Iterable[Run]) -> None:
        """These runs go on no more, or will not begin; those that held places give them back."""
        if self._ledger.end(runs):
            self._some.set()

    def look(self, limits: Iterable[Limit]) -> None:
        """Rows wait under these limits: how many places are left is asked now, and each time that something ends."""
        self._looked = tuple(limits)
        if self._looked:
            self._some.set()

    def left(self, limits: Iterable[Limit]) -> int | None:
        """How many places were left a moment ago, under all of these limits; None: there is no limit."""
        return min((max(0, self._left.get(limit.name, 0)) for limit in limits), default=None)

    async def run_once(self) -> LimitsReport:
        """One report. Raises RedisError or OSError; runs that asked for a place wait as rows then."""
        async with self._one:
            return await self._report()

    async def _report(self) -> LimitsReport:
        offers, self._offers = self._offers, []
        held = self._ledger.held([*self._looked, *(limit for offer in offers for limit in offer.limits)])
        places: Places | None = None
        asked_at = monotonic()
        self._number += 1
        acked = self._acked if asked_at - self._acked_at < self._lease_s * 0.9 else 0
        try:
            asks = [Ask(len(offer.runs), offer.limits) for offer in offers]
            report = Report(self._caller, self._number, acked, held, asks)
            places = await statement.report(self._redis, self._keys, report, lease_s=self._lease_s)
        finally:
            self._away = places is None
            if places is None or monotonic() - asked_at > self._trust_s:
                for offer in offers:
                    self._refuse(offer.runs, offer.limits)
                self._left.clear()
                offers = []
        if places is not None:
            self._acked, self._acked_at = self._number, asked_at
            self._ledger.reported(held)
            self._left = {limit.name: left for limit, left in places.left.items()}
        return self._hand_on(offers, places.given if places and offers else [])

    def _hand_on(self, offers: list[Offer], given: list[int]) -> LimitsReport:
        placed = unplaced = 0
        now = monotonic()
        for offer, places in zip(offers, given, strict=True):
            self._ledger.begin(offer.runs[:places], offer.limits)
            if now - offer.since > self._stale_s:
                self.ended(offer.runs[:places])
                places = 0
            if runs := offer.runs[:places]:
                self._placed(offer.target, runs)
            if rest := offer.runs[places:]:
                self._refuse(rest, offer.limits)
            placed, unplaced = placed + len(runs), unplaced + len(rest)
        if any(self.left([limit]) for limit in self._looked):
            self._on_left()
        return LimitsReport(placed, unplaced)

    def withdraw(self) -> list[Run]:
        """Takes back what has asked for a place and is not on its way."""
        offers, self._offers = self._offers, []
        return [run for offer in offers for run in offer.runs]

    def _refuse(self, runs: list[Run], limits: tuple[Limit, ...]) -> None:
        full = next((limit for limit in limits if not self.left([limit])), limits[0])
        self._unplaced(runs, TENANT_BUSY if full.name.startswith("tenant:") else TARGET_BUSY)

    async def run(self, count: Callable[[LimitsReport], None]) -> None:
        """Reports when there is news, and renews what is held."""
        while True:
            try:
                count(await self.run_once())
                self._outage.recovered()
            except (RedisError, OSError) as error:
                await asyncio.sleep(self._outage.failed(error))
            await asyncio.sleep(LINGER_S)
            try:
                async with asyncio.timeout(self._renew_s):
                    await self._some.wait()
            except TimeoutError:
                pass
            self._some.clear()

    async def leave(self) -> None:
        """For a stopping runner: says that it holds nothing any more. Raises RedisError or OSError."""
        if self._ledger:
            await self.run_once()
