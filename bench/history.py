"""What today's day of `runs` holds already: rows that ended well, of schedules that are gone, at earlier instants of the day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

DAY_S = 86_400
SCHEDULES = 300_000  # of an instant: a day of 5 M rows then has 17 instants

_IDS = """
create temporary table bench_ids on commit preserve rows as
select md5(i::text)::uuid as id, 'tenant-' || lpad((i %% 50)::text, 2, '0') as tenant from generate_series(1, %s::int) i order by 1
"""
_ROWS = """
insert into bucketd.runs (scheduled_at, schedule_id, started_at, finished_at, target_id, status, origin, attempt, http_status, tenant)
select at, id, at + interval '120 ms', at + interval '180 ms', t.target_id, 'succeeded', 'fire', 1, 204, tenant
from (select to_timestamp(%s::bigint) as at) a, (select min(target_id) as target_id from bucketd.targets) t, bench_ids
order by id limit %s::bigint
"""


def preload(connection: psycopg.Connection[Any], rows: int, now_s: float, tell: Callable[[int, int], None]) -> None:
    """Makes `rows` of them, spread over the day up to a moment ago, and vacuums; `tell(done, rows)` goes along.

    Raises RuntimeError if the day is too young for so many instants.
    """
    day_s = int(now_s) // DAY_S * DAY_S
    instants = -(-rows // SCHEDULES)
    step_s = (int(now_s) - day_s) // (instants + 1)
    if step_s < 1:
        raise RuntimeError(f"expected at least {instants + 1} s of today to be over (UTC); start again in a minute")
    connection.execute(_IDS, (min(rows, SCHEDULES),))
    for place in range(instants):
        done = place * SCHEDULES
        connection.execute(_ROWS, (day_s + (place + 1) * step_s, min(SCHEDULES, rows - done)))
        tell(min(done + SCHEDULES, rows), rows)
    connection.execute("drop table bench_ids")
    connection.execute("vacuum (analyze) bucketd.runs")
