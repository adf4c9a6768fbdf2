"""A report about a run that went on between the look at it and the write: the statement itself sees that it comes too late."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bucketd.store import long_runs
from bucketd.store.long_runs import Outcome, Refused, Standing
from bucketd.store.model import instant
from bucketd.store.operation import Operation, drive_async
from tests.support.rows import Rows

REPORTS: dict[str, Callable[[Standing], Operation[Any]]] = {
    "heartbeat": lambda run: long_runs.heartbeat(run, 1),
    "completion": lambda run: long_runs.complete(run, 1, Outcome(), 0.5),
    "reported-failure": lambda run: long_runs.complete(run, 1, Outcome("disk full"), 0.5),
}
MEANWHILE = {
    "attempt": "attempt = 2",  # it timed out, and the next one goes on
    "end": "status = 'retrying', claim = null, wake_at = '2100-01-01'",  # it ended in a failure, and the next one is to come
}


@pytest.fixture
async def found(rows: Rows, connection: psycopg.AsyncConnection[Any]) -> Standing:
    """A run whose first attempt a target has accepted."""
    id, at_s = rows.every(60), int(rows.now()) - 5
    rows.sql("update bucketd.targets set complete_within_s = 60, max_attempts = 3")
    rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, tenant, status, origin, attempt, wake_at, started_at)"
        " values (to_timestamp(%s), %s, %s, 'default', 'running', 'fire', 1, '2100-01-01', bucketd.bucketd_now())",
        at_s, id, rows.target(),
    )  # fmt: skip
    return await drive_async(long_runs.find(id, instant(at_s * 1_000_000)), connection)


@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize("half", MEANWHILE)
async def test_what_went_on_meanwhile_stays_as_it_is(
    half: str, kind: str, found: Standing, rows: Rows, connection: psycopg.AsyncConnection[Any]
) -> None:
    rows.sql(f"update bucketd.runs set {MEANWHILE[half]}")
    before = rows.sql("select * from bucketd.runs")
    with pytest.raises(Refused):
        await drive_async(REPORTS[kind](found), connection)
    assert rows.sql("select * from bucketd.runs") == before


@pytest.mark.parametrize("kind", REPORTS)
async def test_what_stands_as_it_was_found_is_written(
    kind: str, found: Standing, rows: Rows, connection: psycopg.AsyncConnection[Any]
) -> None:
    before = rows.sql("select * from bucketd.runs")
    await drive_async(REPORTS[kind](found), connection)
    assert rows.sql("select * from bucketd.runs") != before
