"""Connections to a test's own database, and the few rows that every schedule needs."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from bucketd.store.config import Settings
from bucketd.store.keys import Keys
from bucketd.store.redis_client import make_redis
from tests.support.databases import Databases
from tests.support.rows import Rows


@pytest.fixture
def postgres_of_test(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def migrated(databases: Databases) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a migrated database that tests only look at."""
    with databases.clone() as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def shared(databases: Databases) -> Iterator[psycopg.Connection[Any]]:
    """A database for the tests of one file, which do not get into each other's way: cheaper than one for each."""
    with databases.clone() as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest_asyncio.fixture
async def connection(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """The same for what is async."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def rows(postgres_of_test: psycopg.Connection[Any]) -> Rows:
    """Writes schedules by plain SQL."""
    return Rows(postgres_of_test)


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of the session's Redis."""
    client = make_redis(Settings.load({}, redis_url=redis_url))
    yield client
    await client.aclose()


@pytest.fixture
def keys(prefix: str) -> Keys:
    """Key names under the test's prefix."""
    return Keys(prefix)
