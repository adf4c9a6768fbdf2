"""`schedules.why` on what scheduler nodes made of an outage: every occurrence since then has its explanation."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from bucketd import AsyncClient
from bucketd.explain.answer import Answer, Verdict
from bucketd.explain.timeline import instant
from bucketd.scheduler import expander
from bucketd.scheduler.node import Scheduler
from bucketd.store.config import Settings
from tests.scheduler.world import World

OUTAGE_S = 205  # as tests of settling have it
POLICIES: dict[str, dict[str, Any]] = {
    "once": {"misfire": "run_once"},
    "skip": {"misfire": "skip"},
    "all": {"misfire": "catch_up"},
    "capped": {"misfire": "catch_up", "catch_up_cap": 2},
    "deadline": {"misfire": "catch_up", "deadline_s": 100},
    "jittered": {"misfire": "run_once", "jitter_s": 20},
}


class Asked:
    """Questions about a schedule by its name; instants are seconds of the test."""

    def __init__(self, world: World, client: AsyncClient) -> None:
        self._world, self._client = world, client

    async def why(self, name: str, at_s: int) -> Answer:
        return await self._client.schedules.why(name, instant(self._world.minute + at_s))

    async def verdicts(self, name: str, until_s: int, every_s: int = 30) -> list[str]:
        return [(await self.why(name, at_s)).verdict.value for at_s in range(every_s, until_s, every_s)]


@pytest_asyncio.fixture
async def asked(world: World, settings: Settings) -> AsyncIterator[Asked]:
    async with AsyncClient(settings=settings) as client:
        yield Asked(world, client)


def schedules(world: World) -> dict[str, UUID]:
    return {name: world.rows.every(30, name=name, **policy) for name, policy in POLICIES.items()}


async def outage(world: World, until_s: int) -> Scheduler:
    """Fires up to here were refused, or nobody was there; then a node settled as far as it could."""
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + until_s)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    return scheduler


async def test_before_it_is_settled_nobody_is_there(world: World, asked: Asked) -> None:
    schedules(world)
    await world.scheduler()
    await world.turn_to(world.minute + OUTAGE_S)
    answer = await asked.why("once", 30)
    assert answer.verdict is Verdict.UNSETTLED
    assert "no runner is alive" in answer.text
    assert "owner of the partition: nobody" not in " ".join(answer.facts)


async def test_each_policy_explains_each_missed_occurrence(world: World, asked: Asked) -> None:
    """Slots at 30, 60, .. 150 are settled; those up to 120 are over a minute late, 180 is of a minute that is not over."""
    schedules(world)
    await outage(world, OUTAGE_S)
    counted, waits, skipped = "counted", "waiting", "skipped"
    assert await asked.verdicts("once", 180) == [counted, counted, counted, waits, waits]
    assert await asked.verdicts("skip", 180) == [counted, counted, counted, skipped, waits]
    assert await asked.verdicts("all", 180) == [waits] * 5
    assert await asked.verdicts("capped", 180) == [counted, counted, waits, waits, waits]
    assert await asked.verdicts("deadline", 180) == [counted, counted, counted, waits, waits]
    answer = await asked.why("once", 60)
    assert answer.run
    assert (answer.run.scheduled_at, answer.run.missed) == (instant(world.minute + 120), 3)
    assert "which stands for 3 missed ones" in answer.text
    assert "behind live work" in (await asked.why("all", 60)).text
    assert "caught up after it was missed" in " ".join((await asked.why("all", 60)).facts)
    found = await asked.why("skip", 120)
    assert "it stands for 3 missed occurrences before it as well" in found.facts


async def test_a_confirmed_run_then_an_outage_then_another(world: World, asked: Asked) -> None:
    """The floor has risen twice; each missed one is found in the run of its own outage."""
    schedules(world)
    scheduler = await outage(world, OUTAGE_S)
    await world.turn_to(world.minute + 300)
    await scheduler.planner.run_once()
    await world.drain(scheduler)
    await world.consume()
    await world.settle(scheduler)
    await world.turn_to(world.minute + 600)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    first, second = await asked.why("once", 60), await asked.why("once", 420)
    assert (first.verdict, second.verdict) == (Verdict.COUNTED, Verdict.COUNTED)
    assert first.run
    assert second.run
    assert first.run.scheduled_at == instant(world.minute + 120)
    assert second.run.scheduled_at > instant(world.minute + 420)
    assert (await asked.why("once", 270)).verdict is Verdict.RUNNING
    await _nothing_is_unexplained(asked, 600 - 70)


@pytest.mark.parametrize("for_s", [290, 640])
async def test_what_nobody_watched(world: World, asked: Asked, monkeypatch: pytest.MonkeyPatch, for_s: int) -> None:
    """A long window is owed first, and expanded in chunks; a short one is settled at once."""
    schedules(world)
    await world.turn_to(world.minute + for_s)
    scheduler = await outage(world, for_s)
    if for_s > 300:
        monkeypatch.setattr(expander, "CHUNK_SCHEDULES", 1)
        assert set(await asked.verdicts("once", 300)) == {"owed"}
        while (await scheduler.expander.run_once()).more:
            pass
    await _nothing_is_unexplained(asked, for_s - 80)


async def test_a_hold_keeps_what_fell_due(world: World, asked: Asked) -> None:
    schedules(world)
    world.rows.sql("insert into bucketd.holds (scope, reason) values ('all', 'a move')")
    await outage(world, OUTAGE_S)
    answer = await asked.why("once", 60)
    assert (answer.verdict, answer.run and answer.run.status) == (Verdict.HELD, "held")
    assert "the hold of everything (a move)" in answer.text


async def test_an_edit_and_a_pause_inside_the_outage(world: World, asked: Asked) -> None:
    ids = schedules(world)
    scheduler = await world.scheduler()
    await scheduler.planner.run_once()
    await world.turn_to(world.minute + 100)
    world.rows.sql("update bucketd.schedules set phase = 7 where name = 'once'")
    world.rows.sql("update bucketd.schedules set paused = true, pause_reason = 'x' where name = 'skip'")
    await world.turn_to(world.minute + 130)
    world.rows.sql("update bucketd.schedules set paused = false where name = 'skip'")
    await world.turn_to(world.minute + OUTAGE_S + 30)
    await scheduler.planner.run_once()
    await world.lose_fires(scheduler)
    await world.settle(scheduler)
    assert ids
    assert (await asked.why("skip", 90)).verdict is Verdict.PAUSED  # due before the pause, and dropped by it
    assert "before this was started" in (await asked.why("skip", 90)).text
    assert "was paused then" in (await asked.why("skip", 120)).text
    assert [(await asked.why("once", at)).verdict.value for at in (60, 90, 127)] == ["counted", "counted", "counted"]
    moved = await asked.why("once", 120)  # not whole minutes: the occurrence of the same minute is explained
    assert moved.slot == instant(world.minute + 127)


async def _nothing_is_unexplained(asked: Asked, until_s: int) -> None:
    for name in POLICIES:
        found = await asked.verdicts(name, until_s)
        assert not {"unexplained", "below_floor", "not_in_spec"} & set(found), (name, found)
