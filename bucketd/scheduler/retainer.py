"""Retention: makes the days of `runs` ahead, closes them with an index, drops them behind.

Keeps I1 below the floor: the floor is raised in one pass and a day dropped in a later one, when every statement that might have
passed the old floor is over. If the process dies halfway, the next pass goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from bucketd.scheduler.cluster import Node
from bucketd.store import audit, retention
from bucketd.store.connect import without_statement_timeout
from bucketd.store.locks import alone
from bucketd.store.log import event

_LOCK = 0x62757265746E  # "buretn": one node retains at a time


@dataclass(frozen=True, slots=True)
class Report:
    """Days made, closed and dropped."""

    made: int
    closed: int
    dropped: int


class Retainer:
    """One pass over the days of runs."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def run_once(self) -> Report:
        """Raises what Postgres raises; every step may be repeated."""
        async with alone(self._node.pool, _LOCK) as is_alone:
            if not is_alone:
                return Report(0, 0, 0)
            async with self._node.pool.connection() as connection, without_statement_timeout(connection):
                report = await self._retain(connection)  # an index of a whole day takes its time
        if report != Report(0, 0, 0):
            event("days", made=report.made, closed=report.closed, dropped=report.dropped)
        return report

    async def _retain(self, connection: AsyncConnection[Any]) -> Report:
        settings = self._node.settings
        closed = dropped = 0
        made = await retention.make_days(connection, settings.days_ahead)
        rose = await retention.raise_floor(connection, settings.retention_days)
        for day in await retention.days(connection):
            if day.expired and not rose:  # guard: floor-first
                await retention.drop(connection, day)
                dropped += 1
            elif day.unindexed and not day.expired and day.detaching is None:
                await retention.index(connection, day)
                closed += 1
        await retention.sweep(connection)
        while await audit.forget(connection, settings.audit_days) == audit.FORGET_ROWS:
            pass  # a backlog of a long time: each turn deletes a bounded number, so this ends
        return Report(made, closed, dropped)
