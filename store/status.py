"""The cluster's state in figures: counts, who owns what, and how late runs start. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from bucketd.store.breakers import OpenBreaker, list_open
from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "status"
COUNT_BOUND = 100_000  # counts in Status stop here
LATENESS_BOUND = 5_000  # runs that lateness is measured by, at most


@dataclass(frozen=True, slots=True)
class Status:
    """The cluster's state. Counts of runs and dead letters stop at 100,000.

    `unfinished`: runs that wait, by status; a running one waits for its target's report. `due`: those of them that could be taken
    now. `batches`: claims that runners hold. `last_minute`: runs scheduled in the last 60 s, by status. `settled_through`: every
    occurrence up to here has its row or its count, in the partition that is furthest behind. `failed_specs`: rules that no node can
    compute; their schedules do not fire.
    `holds`: of users. `breakers`: targets that fail and are not called for now, oldest first, at most 100.
    """

    now: datetime
    schedules: int
    paused: int
    unfinished: Mapping[str, int]
    due: int
    batches: int
    last_minute: Mapping[str, int]
    runners: int
    owners: int
    unowned_partitions: int
    settled_through: datetime
    settled_lag_s: float
    backfills: int
    dead_letters: int
    holds: int
    failed_specs: int
    breakers: tuple[OpenBreaker, ...] = ()


def read(dead_after_s: float) -> Operation[Status]:
    """The cluster's state; a runner is dead after so many seconds without a heartbeat."""
    [row] = yield Query(statements(_SQL)["read"], {"bound": COUNT_BOUND, "dead_after_s": dead_after_s})
    now, total, active, unfinished, due, claims, minute, runners, owners, unowned, settled, *counts = row
    backfills, dead, holds, failed = counts
    breakers = yield from list_open()
    return Status(
        now=now.astimezone(UTC), schedules=total, paused=total - active, unfinished=json.loads(unfinished or "{}"), due=due,
        batches=claims, last_minute=json.loads(minute or "{}"), runners=runners, owners=owners, unowned_partitions=unowned,
        settled_through=settled.astimezone(UTC), settled_lag_s=(now - settled).total_seconds(), backfills=backfills,
        dead_letters=dead, holds=holds, failed_specs=failed, breakers=tuple(breakers),
    )  # fmt: skip


def owners() -> Operation[list[UUID | None]]:
    """The owner of each partition, in the order of partitions; None: nobody's."""
    rows = yield Query(statements(_SQL)["owners"])
    return [row[0] for row in rows]


def lateness(window_s: int) -> Operation[tuple[float | None, float | None]]:
    """Median and 99th percentile of start after `due` in seconds, of the window's first attempts; None: there was none."""
    rows = yield Query(statements(_SQL)["lateness"], {"window_s": window_s, "bound": LATENESS_BOUND})
    p50_s, p99_s = rows[0]
    return p50_s, p99_s
