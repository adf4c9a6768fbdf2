"""A world for each test: a database and a key prefix of its own, nodes in the test's loop."""

from collections.abc import AsyncIterator

import psycopg
import pytest_asyncio

from bucketd.store.config import Settings
from tests.scheduler.world import World


@pytest_asyncio.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    """Nothing runs at first; the clock stands at the first second of a minute."""
    with psycopg.connect(settings.dsn.get_secret_value(), autocommit=True) as connection:
        world = World(settings, connection)
        yield world
        await world.close()
