"""A runner whose lease is in doubt, as after a sleep of the machine, for as long as a test wants."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from bucketd.runner.loop import Runner
from tests.runner.conftest import World
from tests.support.waiting import wait_until

PATIENT: dict[str, Any] = {
    "lock_timeout_s": 30.0,
    "statement_timeout_s": 30.0,
}  # for the runner: its renewal waits and does not give up
BEAT_AT_LOCK = """
select 1 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%Renews the lease%' and pid <> pg_backend_pid()"""


@asynccontextmanager
async def in_doubt(world: World, runner: Runner) -> AsyncIterator[None]:
    """Inside, the next renewal is under way and does not end; behind it the lease is good again, if its row lives.

    `world.db` is in a transaction meanwhile: what it writes inside nobody else sees.
    """
    with (
        psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as watch,
        world.db.transaction(),
    ):
        world.sql("select 1 from bucketd.runners for update")
        runner.heartbeat.suspect()
        await wait_until(lambda: watch.execute(BEAT_AT_LOCK).fetchone(), 10, "a renewal at the lock")
        runner.heartbeat.current.believed_until = 0.0
        yield
