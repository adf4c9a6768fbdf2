"""Retention: makes the days of `runs` ahead, closes them with an index, drops them behind.

Keeps I1 below the floor: the floor is raised in one pass and a day dropped in a later one, when every statement that might have
passed the old floor is over. If the process dies halfway, the next pass goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketd.scheduler.cluster import Node
from bucketd.store import audit, retention
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
        settings = self._node.settings
        made = closed = dropped = 0
        async with self._node.pool.connection() as connection:
            row = await (await connection.execute("select pg_try_advisory_lock(%s)", (_LOCK,))).fetchone()
            if not row or not row[0]:
                return Report(0, 0, 0)
            try:
                await connection.execute("set statement_timeout = 0")  # an index of a whole day takes its time
                made = await retention.make_days(connection, settings.days_ahead)
                rose = await retention.raise_floor(connection, settings.retention_days)
                for day in await retention.days(connection):
                    if day.expired and not rose:
                        await retention.drop(connection, day)
                        dropped += 1
                    elif day.unindexed and not day.expired and day.detaching is None:
                        await retention.index(connection, day)
                        closed += 1
                await retention.sweep(connection)
                while await audit.forget(connection, settings.audit_days) == audit.FORGET_ROWS:
                    pass  # a backlog of a long time: each turn deletes a bounded number, so this ends
            finally:
                await connection.execute("reset statement_timeout")
                await connection.execute("select pg_advisory_unlock(%s)", (_LOCK,))
        if made or closed or dropped:
            event("days", made=made, closed=closed, dropped=dropped)
        return Report(made, closed, dropped)
