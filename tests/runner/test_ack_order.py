"""I6: while the rows of a message are on their way to Postgres, the message is still another runner's to take."""

import psycopg

from tests.runner.conftest import World
from tests.support.target import Target
from tests.support.waiting import wait_until

CONFIRM_AT_LOCK = """
select 1 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%Step 3:%' and pid <> pg_backend_pid()"""


async def test_nothing_is_acknowledged_before_its_rows_are_committed(world: World, target: Target, hook: int) -> None:
    """Somebody else is writing one of the keys, and gives it up in the end."""
    schedules, at = [world.schedule(hook) for _ in range(3)], world.now_s - 5
    async with world.runner(lock_timeout_s=30.0, statement_timeout_s=30.0) as runner:
        with (
            psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as watch,
            world.db.transaction(force_rollback=True),
        ):
            world.run(schedules[1], at)
            world.put(world.fire(schedule, at) for schedule in schedules)
            await wait_until(lambda: watch.execute(CONFIRM_AT_LOCK).fetchone(), 10, "the confirm at the key")
            await runner.acknowledger.run_once()  # whatever is thought to be through goes now
            assert (world.queued(), world.pending(), runner.acknowledger.held) == (1, 1, 1)
        await world.until({"succeeded": 3})
        await world.until_quiet()
        await wait_until(lambda: runner.acknowledger.held == 0, 5, "the acknowledgement")
    assert len(target.runs) == 3
