"""What falls due, one schedule after the other: its expression by `walk`, its bounds and its jitter as they stand in its row."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import psycopg

from tests.support.walk import walk_cron, walk_every

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Fire:
    """One occurrence that falls due, and whose it is."""

    id: UUID
    tenant: str
    target: str
    partition: int
    expression: str
    due: datetime

    @property
    def minute(self) -> datetime:
        """The minute in which it is due."""
        return self.due.replace(second=0)


def fires_due(sql: psycopg.Connection[Any], start: datetime, end: datetime) -> list[Fire]:
    """All that is due in [start, end). A cron's row holds its text as `EXPRESSION|ZONE`, an interval's its rule's length."""
    rows = sql.execute(
        "select s.id, s.tenant, t.name, s.partition_id, s.expression, p.kind, p.every_s, s.phase, s.jitter_offset_s,"
        " greatest(s.floor, s.timing_from, s.starts_at, case when s.paused then s.paused_until end), s.ends_at"
        " from bucketd.schedules s join bucketd.specs p using (spec_id) join bucketd.targets t using (target_id)"
        " where not s.paused or s.paused_until is not null"
    ).fetchall()
    found = []
    for id, tenant, target, partition, expression, kind, every_s, phase, offset_s, from_at, ends_at in rows:
        if kind == "cron":
            text, _, zone = expression.partition("|")
            instants = _walk(text, zone or "UTC", start - HOUR, end)
        elif kind == "every":
            instants = walk_every(every_s, phase, start - HOUR, end)
        else:
            instants = [datetime.fromtimestamp(phase, UTC)]
        for at in instants:
            due = at + timedelta(seconds=offset_s)
            if start <= due < end and at >= from_at and (ends_at is None or at < ends_at):
                found.append(Fire(id, tenant, target, partition, expression, due))
    return found


_walk = lru_cache(maxsize=256)(walk_cron)  # schedules share expressions


def per_minute(fires: list[Fire], start: datetime, end: datetime) -> tuple[int, ...]:
    """Fires of each minute."""
    counts = Counter(fire.minute for fire in fires)
    return tuple(counts[start + timedelta(minutes=n)] for n in range(int((end - start).total_seconds()) // 60))
