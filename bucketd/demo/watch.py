"""Looks at the cluster a few times a second, from outside: Postgres, Redis, and what the target recorded."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from uuid import UUID

import msgpack
import psycopg
import redis

from bucketd.demo.deliveries import DeliveryLog
from bucketd.demo.expect import Occurrence
from bucketd.store.keys import PARTITIONS, Keys
from bucketd.store.statements import statements

_SQL = statements("ledger")
LAG_OF_LAST_S = 5.0
RATES = 60


@dataclass(frozen=True, slots=True)
class View:
    """One look. `owners`: partitions by process id of the scheduler node."""

    delivered: int = 0
    due: int = 0
    overdue: int = 0
    queued: int = 0
    waiting: int = 0
    owners: tuple[tuple[int, int], ...] = ()
    runners: frozenset[int] = frozenset()
    rates: tuple[int, ...] = ()
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None

    @property
    def owned(self) -> int:
        """Partitions that have an owner."""
        return sum(count for _, count in self.owners)

    @property
    def complete(self) -> bool:
        """Whether every partition is owned, by nodes that are known by their process."""
        return self.owned == PARTITIONS and all(pid for pid, _ in self.owners)


class Watch:
    """Reads only. `promise` tells what is to be delivered; lag counts what was scheduled at or after `live_from_s`."""

    def __init__(self, dsn: str, redis_url: str, log: DeliveryLog, dead_after_s: float) -> None:
        self._postgres = psycopg.connect(dsn, autocommit=True)
        self._redis = redis.Redis.from_url(redis_url)
        self._keys = Keys()
        self._log = log
        self._dead_after_s = dead_after_s
        self._pids: dict[UUID, int] = {}
        self._per_second: Counter[int] = Counter()
        self._lags: deque[tuple[float, float]] = deque()
        self.promised: set[Occurrence] = set()
        self.live_from_s = 0

    def promise(self, occurrences: set[Occurrence]) -> None:
        """More that is to be delivered."""
        self.promised |= occurrences

    def delivered(self, occurrences: set[Occurrence]) -> int:
        """How many of these the target has seen."""
        return len(occurrences & self._log.occurrences)

    def look(self) -> View:
        """One look, some milliseconds long."""
        now_s = time.time()
        self._take_deliveries(now_s)
        due = {occurrence for occurrence in self.promised if occurrence[2] <= now_s}
        lags = sorted(lag for _, lag in self._lags)
        second = int(now_s)
        return View(
            delivered=self.delivered(self.promised),
            due=len(self.promised),
            overdue=len(due - self._log.occurrences),
            queued=self._queued(),
            waiting=self._one(_SQL["waiting"]),
            owners=self._owners(),
            runners=self._runners(),
            rates=tuple(self._per_second[at] for at in range(second - RATES, second)),
            lag_p50_ms=quantile(lags, 0.50),
            lag_p99_ms=quantile(lags, 0.99),
        )

    def close(self) -> None:
        """Closes both connections."""
        self._postgres.close()
        self._redis.close()

    def _take_deliveries(self, now_s: float) -> None:
        for delivery in self._log.read():
            self._per_second[int(delivery.arrived_s)] += 1
            if delivery.occurrence[2] >= self.live_from_s:
                self._lags.append((delivery.arrived_s, delivery.lateness_s * 1000))
        while self._lags and self._lags[0][0] < now_s - LAG_OF_LAST_S:
            self._lags.popleft()

    def _queued(self) -> int:
        """Fires between drain and confirm, by messages: each holds at least one."""
        pipeline = self._redis.pipeline(transaction=False)
        for queue in self._keys.queues:
            pipeline.xlen(queue)
        return sum(pipeline.execute())

    def _owners(self) -> tuple[tuple[int, int], ...]:
        rows = self._postgres.execute(_SQL["owners"]).fetchall()
        if any(owner not in self._pids for owner, *_ in rows):
            raw: dict[bytes, bytes] = self._redis.hgetall(self._keys.member_info)  # type: ignore[assignment]
            self._pids |= {UUID(hex=node.decode()): msgpack.unpackb(info).get("pid", 0) for node, info in raw.items()}
        return tuple(sorted((self._pids.get(owner, 0), count) for owner, count, _ in rows))

    def _runners(self) -> frozenset[int]:
        rows = self._postgres.execute(_SQL["runners"], {"dead_after_s": self._dead_after_s}).fetchall()
        return frozenset(pid for (pid,) in rows)

    def _one(self, statement: str) -> int:
        row = self._postgres.execute(statement).fetchone()
        assert row is not None
        return int(row[0])


def quantile(ascending: list[float], share: float) -> float | None:
    """The value that this share of them does not exceed; None of nothing."""
    if not ascending:
        return None
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))]
