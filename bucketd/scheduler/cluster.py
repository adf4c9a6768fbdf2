"""What all services of one node share: its identity, the stores, the clock, and the partitions it owns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis

from bucketd.scheduler.partition import Partition
from bucketd.scheduler.specbook import SpecBook
from bucketd.scheduler.traffic import Traffic
from bucketd.store.clock import Clock, monotonic
from bucketd.store.config import Settings
from bucketd.store.fires import OLDEST_VERSION
from bucketd.store.keys import Keys


@dataclass(slots=True)
class Node:
    """One incarnation of a scheduler node. Its id is random: a host name or a pid may come again, an incarnation never."""

    settings: Settings
    pool: AsyncConnectionPool
    redis: Redis
    keys: Keys
    clock: Clock = field(default_factory=Clock)
    id: UUID = field(default_factory=uuid4)
    book: SpecBook = field(default_factory=SpecBook)
    owned: dict[int, Partition] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    wake_planner: asyncio.Event = field(default_factory=asyncio.Event)  # partitions taken, or a schedule was written
    wake_drainer: asyncio.Event = field(default_factory=asyncio.Event)  # an earlier fire than expected was planned
    wake_expander: asyncio.Event = field(default_factory=asyncio.Event)  # a backfill was written
    wake_settler: asyncio.Event = field(default_factory=asyncio.Event)  # partitions taken: they may be behind
    wake_owner: asyncio.Event = field(default_factory=asyncio.Event)  # the ring changed, or a fence was lost
    history: str | None = None  # of Postgres, as of the last look
    message_version: int = OLDEST_VERSION  # of queue messages: what all runners read, as of the last look
    tzdata: str | None = None  # the release that the cluster computes with, as of the last look
    counts: dict[str, int] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def compare(self) -> bool:
        """Whether fences and epochs are compared; only a test of safety without ownership says no."""
        return not self.settings.no_ownership

    def believed(self) -> list[Partition]:
        """Owned partitions whose lease we still believe in."""
        now = monotonic()
        return [partition for partition in self.owned.values() if partition.believed_until > now]  # guard: belief

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter of this process."""
        if by:
            self.counts[name] = self.counts.get(name, 0) + by

    def count_verdicts(self, written: Mapping[str, int]) -> None:
        """Adds rows that judging wrote (judge.py) to the counters of this process."""
        for verdict, rows in written.items():
            self.count(f"verdict_{verdict}", rows)
