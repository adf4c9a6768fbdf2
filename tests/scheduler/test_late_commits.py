"""A bulk load whose transaction ends behind the watermark: what it costs to settle is what it missed, not the reach of a day."""

import time

import psycopg

from tests.scheduler.world import World
from tests.support.rows import Rows

SCHEDULES = 100
CPU_S = 5.0  # a look through a whole day for each takes a minute, and idles its transaction to death


async def test_settling_late_commits_looks_only_where_their_timing_held(world: World) -> None:
    scheduler = await world.scheduler(lease_ttl_s=60)
    await scheduler.planner.run_once()
    with psycopg.connect(world.settings.dsn.get_secret_value()) as connection:
        rows = Rows(connection)
        loaded = [rows.every(1, misfire="skip") for _ in range(SCHEDULES)]
        await world.turn_to(world.minute + 62)
        await world.drain(scheduler)
        await world.settle(scheduler)
        assert world.settled() == {world.minute + 59}
        connection.commit()
    await world.turn_to(world.minute + 122)
    begin_s = time.process_time()
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    spent_s = time.process_time() - begin_s
    assert world.settled() == {world.minute + 119}
    for id in loaded:
        created = world.rows.of(id, "timing_from").timestamp()
        settled = [(at, missed) for at, _, _, missed, _ in world.rows.runs(id) if at < world.minute + 120]
        assert sum(missed + 1 for _, missed in settled) == world.minute + 119 - int(created)
    assert spent_s < CPU_S, f"{SCHEDULES} late commits took {spent_s:.1f} s"
