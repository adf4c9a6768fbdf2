"""A client, plain SQL, and schedules by the hundred on a fresh database."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bucketd import Client
from tests.support.rows import Rows


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        client.targets.put("hook", "http://localhost:9/hook")
        client.targets.put("mail", "http://localhost:9/mail")
        yield client


@pytest.fixture
def sql(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def rows(sql: psycopg.Connection[Any]) -> Rows:
    return Rows(sql)


@pytest.fixture
def noon(rows: Rows) -> None:
    """The cluster's clock at 12:00:20, so that the highest peak is far from both ends of what lies ahead."""
    now_s = rows.now()
    rows.turn_clock(86_400 + 12 * 3_600 + 20 - now_s % 86_400)


def age(rows: Rows, which: str) -> None:
    """Makes schedules some hours old, so that their jitter reaches over the beginning of the window."""
    rows.sql("alter table bucketd.schedules disable trigger schedules_write")
    rows.sql(
        "update bucketd.schedules set floor = floor - interval '2 hours', timing_from = timing_from - interval '1 day'"
        f" where {which}"
    )
    rows.sql("alter table bucketd.schedules enable trigger schedules_write")
