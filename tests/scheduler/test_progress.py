"""A rebuild that lasts says how far it is; a usual round says nothing."""

import logging

import pytest

from bucketd.scheduler import planner, progress
from tests.scheduler.world import World


async def test_a_rebuild_says_how_far_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three minutes of 40 fires each, written in pieces of 16."""
    caplog.set_level(logging.INFO, logger="bucketd")
    for _ in range(40):
        world.rows.cron("* * * * *")
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    assert not [text for text in caplog.messages if text.startswith("plann")]
    await world.redis.delete(*[key async for key in world.redis.scan_iter(match=f"{world.keys.prefix}:*", count=1_000)])
    for partition in list(scheduler.node.owned.values()):
        scheduler.ownership.suspect(partition)
    await scheduler.ownership.run_once()
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(planner, "PIECE_FIRES", 16)
    await scheduler.planner.run_once()
    found = [text.rpartition(" took_s=")[0] for text in caplog.messages if text.startswith("plann")]
    assert found[-1].startswith("planned minutes=")
    minutes, fires = (int(field.partition("=")[2]) for field in found[-1].split()[1:3])
    assert minutes >= 3
    assert fires >= 3 * 40
    done = found[:-1]
    assert done[-1] == f"planning minutes={minutes}/{minutes} fires={fires}"
    assert len(done) > 2 * minutes, "in the middle of a minute, too"
    assert done == sorted(done, key=lambda text: int(text.rpartition("=")[2])), "it never goes back"
