"""Looks at a running cluster without getting in its way: small reads, a few a second."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import psycopg
import redis

from bucketd.store.keys import PARTITIONS, Keys

_READY = """
select (select count(distinct owner) from bucketd.partitions where owner is not null),
    (select count(*) from bucketd.partitions where owner is null),
    (select count(*) from bucketd.runners where dead_at is null)"""
# The offset is added: commit times are the server's own, the rest is the cluster's clock.
_RUNS = """
select count(*), count(*) filter (where status = 'succeeded'), count(*) filter (where attempt = 1 and status = 'succeeded'),
    count(*) filter (where started_at < scheduled_at), extract(epoch from min(started_at) - min(scheduled_at))::float8,
    extract(epoch from max(started_at) - min(scheduled_at))::float8, extract(epoch from min(finished_at) - min(scheduled_at))::float8,
    extract(epoch from max(pg_xact_commit_timestamp(xmin)) + (select clock_offset from bucketd.cluster) - min(scheduled_at))::float8,
    percentile_cont(array[0.5, 0.99]) within group (order by extract(epoch from started_at - scheduled_at)::float8 * 1000)
from bucketd.runs where scheduled_at = to_timestamp(%s::bigint)"""


class Runs(NamedTuple):
    """The rows of the due instant. Times in seconds after it; `result_last_s`: when the last result was durable."""

    rows: int
    succeeded: int
    first_attempts: int
    early: int
    confirm_first_s: float | None
    confirm_last_s: float | None
    result_first_s: float | None
    result_last_s: float | None
    lateness_ms: list[float] | None


class Watch:
    """Reads both stores."""

    def __init__(self, connection: psycopg.Connection[Any], redis_url: str, due_s: int) -> None:
        self.offset_s = 0.0
        self._connection = connection
        self._redis = redis.Redis.from_url(redis_url)
        self._due_s = due_s
        self._buckets = [Keys().bucket(partition, due_s // 60) for partition in range(PARTITIONS)]

    def close(self) -> None:
        self._redis.close()

    def now(self) -> float:
        """The cluster's clock; Postgres runs on this machine."""
        return time.time() + self.offset_s

    def turn_clock(self, now_s: float) -> None:
        """Lets the cluster's clock show `now_s`, as if everything had been settled until then; while nothing runs.

        A cluster that nobody watched for over five minutes owes that time and works it off beside the live fires: another question.
        """
        self.offset_s = now_s - time.time()
        self._connection.execute(
            "update bucketd.cluster set clock_offset = make_interval(secs => %s::float8)", (self.offset_s,)
        )
        self._connection.execute(
            "update bucketd.partitions set feed_snapshot = pg_current_snapshot(),"
            " settled_through = date_trunc('minute', bucketd.bucketd_now()) - interval '1 second'"
        )

    def owned(self) -> bool:
        """Whether some node owns partitions: it plans from now on."""
        return bool(self._one("select count(owner) from bucketd.partitions"))

    def ready(self, schedulers: int, runners: int) -> bool:
        """Whether the partitions are shared by all schedulers, and the runners are alive."""
        return self._connection.execute(_READY).fetchone() == (schedulers, 0, runners)

    def in_buckets(self) -> int:
        """Fires of the due minute that are planned and not drained."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in self._buckets:
            pipeline.zcard(key)
        return sum(pipeline.execute())

    def runs(self) -> Runs:
        """Reads every row of the due instant: not while the clock runs."""
        row = self._connection.execute(_RUNS, (self._due_s,)).fetchone()
        assert row is not None
        return Runs(*row)

    def open_runs(self) -> int:
        """Rows of the due instant that have not ended."""
        return self._one(
            f"select count(*) from bucketd.runs where scheduled_at = to_timestamp({self._due_s}) and finished_at is null"
        )

    def all_rows(self) -> int:
        """Rows of all days."""
        return self._one("select count(*) from bucketd.runs")

    def settled(self) -> bool:
        """Whether every partition is settled beyond the due instant."""
        return bool(
            self._one(f"select (min(settled_through) >= to_timestamp({self._due_s}))::int from bucketd.partitions")
        )

    def _one(self, statement: str) -> int:
        row = self._connection.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])
