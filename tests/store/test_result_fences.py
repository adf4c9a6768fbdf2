"""The fence of each result statement, either half by itself: whose attempt or claim is not the row's any more writes nothing."""

from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from bucketd.store import results
from bucketd.store.arrays import packed_instant, packed_int2, packed_int8
from bucketd.store.results import TARGET_BUSY, Failed, Keys
from tests.support.rows import Rows

CLAIM, ATTEMPT = 70, 2
Write = Callable[[psycopg.AsyncConnection[Any], Keys], Coroutine[Any, Any, int]]
STATEMENTS: dict[str, Write] = {
    "success": lambda connection, keys: results.write_succeeded(connection, keys, [packed_int2(200)], []),
    "failure": lambda connection, keys: results.write_failed(connection, keys, [Failed(500, "no", 60.0, None)], []),
    "acceptance": lambda connection, keys: results.write_accepted(connection, keys, [60], []),
    "give-back": lambda connection, keys: results.give_back(connection, keys, [None], []),
    "deferral": lambda connection, keys: results.defer(connection, keys, [TARGET_BUSY], []),
}
WRITTEN = {
    "success": "succeeded",
    "failure": "retrying",
    "acceptance": "running",
    "give-back": "retrying",
    "deferral": "deferred",
}


def running(rows: Rows, *, attempt: int = ATTEMPT, claim: int = CLAIM) -> Keys:
    """A run that is under way by this attempt and claim, and what a writer says that holds ATTEMPT and CLAIM."""
    id, at_s = rows.every(60), int(rows.now()) - 5
    rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, tenant, status, origin, attempt, claim, started_at)"
        " values (to_timestamp(%s), %s, %s, 'default', 'running', 'fire', %s, %s, bucketd.bucketd_now())",
        at_s, id, rows.target(), attempt, claim,
    )  # fmt: skip
    return Keys([id.bytes], [packed_instant(at_s * 1_000_000)], [packed_int2(ATTEMPT)], [packed_int8(CLAIM)])


def everything(rows: Rows) -> list[tuple[Any, ...]]:
    return rows.sql("select * from bucketd.runs") + rows.sql("select * from bucketd.slots")


@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("half", ["attempt", "claim"])
async def test_what_is_not_the_writers_stays_as_it_is(
    half: str, kind: str, rows: Rows, connection: psycopg.AsyncConnection[Any]
) -> None:
    keys = running(rows, attempt=ATTEMPT + (half == "attempt"), claim=CLAIM + (half == "claim"))
    before = everything(rows)
    assert await STATEMENTS[kind](connection, keys) == 0
    assert everything(rows) == before


@pytest.mark.parametrize("kind", STATEMENTS)
async def test_what_is_the_writers_is_written_once(
    kind: str, rows: Rows, connection: psycopg.AsyncConnection[Any]
) -> None:
    keys = running(rows)
    assert await STATEMENTS[kind](connection, keys) == 1
    assert rows.one("select status::text from bucketd.runs where claim is null") == WRITTEN[kind]
    assert await STATEMENTS[kind](connection, keys) == 0, "nor does a repeat, after a lost reply, write it again"
