"""The application on a database that the tests of one file share, driven directly."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio
from psycopg.rows import dict_row

from bucketd.api import App
from bucketd.store.config import Settings
from bucketd.store.keyring import new_key
from bucketd.store.model import run_id
from tests.support.asgi import AsgiClient
from tests.support.databases import Databases
from tests.support.rows import Rows

WITHIN_S = 600
RING = new_key()


@dataclass(frozen=True)
class LongRun:
    """A run as a target knows it, and as it stands in the database."""

    db: psycopg.Connection[Any]
    schedule: UUID
    at: datetime

    @property
    def id(self) -> str:
        return run_id(self.schedule, self.at)

    @property
    def row(self) -> dict[str, Any]:
        cursor = self.db.cursor(row_factory=dict_row)
        cursor.execute(
            "select *, extract(epoch from wake_at - bucketd.bucketd_now())::float8 as wakes_in_s from bucketd.runs"
            " where schedule_id = %s and scheduled_at = %s",
            (self.schedule, self.at),
        )
        row = cursor.fetchone()
        assert row is not None
        return row

    @property
    def letters(self) -> list[tuple[Any, ...]]:
        """(reason, attempts, payload) of its dead letters."""
        return self.db.execute(
            "select reason, attempts, payload from bucketd.dead_letters where schedule_id = %s", (self.schedule,)
        ).fetchall()

    def becomes(self, change: str) -> None:
        """Somebody else writes the row."""
        statement = f"update bucketd.runs set {change} where schedule_id = %s and scheduled_at = %s"
        self.db.execute(statement.encode(), (self.schedule, self.at))


class Desk:
    """Makes targets, schedules and long runs."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self.db = db
        self._rows = Rows(db)

    def target(self, **columns: Any) -> int:
        """A target that reports, with retries at once."""
        values = {
            "name": f"t-{uuid4().hex}", "url": "http://h/", "complete_within_s": WITHIN_S, "max_attempts": 3,
            "retry_base_s": 100, "retry_cap_s": 100, **columns,
        }  # fmt: skip
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        made = f"insert into bucketd.targets ({names}) values ({marks}) returning target_id"
        return int(self._rows.one(made, *values.values()))

    def run(self, *, target: int | None = None, attempt: int = 1, held: bool = False, **schedule: Any) -> LongRun:
        """A run that its target has accepted; `held`: its runner has not written that yet."""
        target = self.target() if target is None else target
        made = self._rows.every(60, target_id=target, payload='{"a":  1}', **schedule)
        at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
        claim, wake = (7, None) if held else (None, at + timedelta(seconds=WITHIN_S))
        self._rows.sql(
            "insert into bucketd.runs (scheduled_at, schedule_id, status, origin, attempt, tenant, target_id, claim, wake_at,"
            " http_status, started_at) values (%s, %s, 'running', 'fire', %s, 'default', %s, %s, %s, %s, now())",
            at, made, attempt, target, claim, wake, None if held else 202,
        )  # fmt: skip
        return LongRun(self.db, made, at)


@pytest.fixture(scope="module")
def url(databases: Databases) -> Iterator[str]:
    """A database for the tests of one file: each makes runs of its own."""
    with databases.clone() as url:
        yield url


@pytest.fixture(scope="module")
def desk(url: str) -> Iterator[Desk]:
    with psycopg.connect(url, autocommit=True) as db:
        yield Desk(db)


@pytest.fixture
def api_settings(url: str) -> Settings:
    return Settings.load({}, dsn=url, secret_keys=RING)


@pytest_asyncio.fixture
async def api(api_settings: Settings) -> AsyncIterator[AsgiClient]:
    """A client of an open application."""
    app = App(api_settings)
    await app.open()
    yield AsgiClient(app)
    await app.close()
