"""A client on a fresh database, and a plain connection beside it to look at and to arrange what the client does not."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import Client


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        client.targets.put("hook", "http://localhost:9/hook")
        yield client


@pytest.fixture
def sql(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


class Rows:
    """Rows of `runs` written by hand."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def now(self) -> datetime:
        found = self._connection.execute("select bucketd.bucketd_now()").fetchone()
        assert found
        now: datetime = found[0]
        return now.astimezone(UTC)

    def add(
        self,
        schedule_id: UUID,
        age: timedelta,
        status: str,
        *,
        attempt: int = 0,
        origin: str = "settle",
        missed: int = 0,
        claim: int | None = None,
        tenant: str = "default",
    ) -> datetime:
        """A run scheduled so long ago; its instant."""
        at = (self.now() - age).replace(microsecond=0)
        final = status in ("succeeded", "skipped", "cancelled", "dead")
        wake = "infinity" if status == "held" else None if final or status == "running" else at.isoformat()
        self._connection.execute(
            "insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, attempt, missed, claim, wake_at,"
            " finished_at) select %s, %s, %s, target_id, %s, %s, %s, %s, %s, %s, %s from bucketd.targets where name = 'hook'",
            (at, schedule_id, tenant, status, origin, attempt, missed, claim, wake, at if final else None),
        )
        return at

    def status(self, schedule_id: UUID, at: datetime) -> tuple[str, str | None]:
        found = self._connection.execute(
            "select status::text, reason from bucketd.runs where schedule_id = %s and scheduled_at = %s",
            (schedule_id, at),
        ).fetchone()
        assert found
        return found[0], found[1]


@pytest.fixture
def rows(sql: psycopg.Connection[Any]) -> Rows:
    return Rows(sql)


def count(connection: psycopg.Connection[Any], table: str) -> int:
    """Rows of a table of the schema."""
    found = connection.execute(f"select count(*) from bucketd.{table}".encode()).fetchone()
    assert found
    return int(found[0])


def bury(sql: psycopg.Connection[Any], schedule_id: UUID, at: datetime, name: str = "s") -> int:
    """A dead letter written by hand; its id."""
    found = sql.execute(
        "insert into bucketd.dead_letters"
        " (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, failures, died_at)"
        " select %s, %s, 'default', %s, target_id, '{\"a\": 1}', 'attempts', 5, '[{\"attempt\": 5}]', bucketd.bucketd_now()"
        " from bucketd.targets where name = 'hook' returning dead_letter_id",
        (schedule_id, at, name),
    ).fetchone()
    assert found
    return int(found[0])
