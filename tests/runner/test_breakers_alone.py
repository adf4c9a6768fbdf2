"""What one runner makes of what it hears: whose fault silence is, and what is left undone while Postgres is away."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.breaker import Rules
from bucketd.runner.breakers import Breakers
from bucketd.runner.call import Answer
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.connect import make_pool
from bucketd.store.runners import CallTarget
from tests.runner.conftest import World

RULES = Rules(doubt_s=0.0, pause_s=600)
NOTHING, FAILED, GOOD = Answer(None, "cut"), Answer(503), Answer(200)


def run_of(target: CallTarget) -> Run:
    claim = Claim(Incarnation(uuid4()))
    return Run(uuid4().bytes, bytes(8), 1, claim, "default", target.target_id, None, "id", "{}")


class Ear:
    """A runner's breakers without the runner: it hears what a test says."""

    def __init__(self, world: World, pool: AsyncConnectionPool, rules: Rules) -> None:
        self.world = world
        self.breakers = Breakers(pool, rules)

    def target(self, host: str) -> CallTarget:
        """A target that exists."""
        url = f"http://{host}/"
        target_id = self.world.target(url)
        row = {"target_id": target_id, "revision": 1, "name": f"t{target_id}", "url": url}
        return CallTarget(**{**dict.fromkeys(CallTarget.__dataclass_fields__), **row})  # type: ignore[arg-type]

    def hear(self, target: CallTarget, *answers: Answer) -> None:
        for answer in answers:
            self.breakers.heard([run_of(target)], target, answer)

    def open(self) -> dict[int, int]:
        """Openings by target, of all breakers."""
        return {row["target_id"]: row["openings"] for row in self.world.sql("select * from bucketd.holds")}


@asynccontextmanager
async def ear(world: World, rules: Rules = RULES) -> AsyncIterator[Ear]:
    async with make_pool(world.settings, application="test", size=1) as pool:
        yield Ear(world, pool, rules)


async def test_when_nearly_all_hosts_are_silent_no_breaker_opens(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bucketd")
    async with ear(world) as one:
        targets = [one.target(f"host-{n}") for n in range(5)]
        one.hear(targets[0], *[NOTHING] * 4)
        for target in targets:
            one.hear(target, GOOD, *[NOTHING] * 6)
        await one.breakers.run_once()
        await one.breakers.run_once()
        assert one.open() == {}
        assert [record.args[0] for record in caplog.records if record.args] == ["runner_cut_off"]  # type: ignore[index]
        one.hear(targets[0], GOOD)  # the network is back, for all but one
        for target in targets[1:4]:
            one.hear(target, GOOD)
        one.hear(targets[4], NOTHING)
        await one.breakers.run_once()
        assert one.open() == {targets[4].target_id: 1}
        assert "runner_reconnected" in caplog.text


async def test_a_target_that_answers_within_the_doubt_is_none(world: World) -> None:
    async with ear(world) as one:
        target = one.target("host")
        one.hear(target, *[NOTHING] * 5, Answer(404))
        await one.breakers.run_once()
        assert one.open() == {}
        one.hear(target, *[NOTHING] * 5)
        await one.breakers.run_once()
        assert one.open() == {target.target_id: 1}


async def test_a_request_that_was_not_sent_says_nothing(world: World) -> None:
    async with ear(world) as one:
        target = one.target("host")
        one.hear(target, *[Answer(None, "a barred address", sent=False)] * 30)
        await one.breakers.run_once()
        assert one.open() == {}


async def test_time_outs_that_this_process_slept_through_say_nothing(world: World) -> None:
    async with ear(world, replace(RULES, poll_s=0.01, stalled_s=0.05, doubt_s=0.2)) as one:
        target = one.target("host")
        pausing = asyncio.create_task(one.breakers.pause())
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 - the stall itself
        one.hear(target, *[NOTHING] * 5)
        await pausing
        one.hear(target, *[NOTHING] * 5)
        await one.breakers.run_once()
        assert one.breakers.health.suspects == {}
        one.hear(target, *[FAILED] * 20)  # an answer was given, however late we look at it
        await one.breakers.run_once()
        assert one.open() == {target.target_id: 1}


async def test_openings_in_a_row_are_counted_by_everybody_who_saw_the_closing(world: World) -> None:
    async with ear(world) as one, ear(world) as other:
        target = one.target("host")
        for openings in (1, 2):
            one.hear(target, *[FAILED] * 20)
            await one.breakers.run_once()
            await other.breakers.run_once()
            assert one.open() == {target.target_id: openings}
            world.sql("delete from bucketd.holds")  # by hand
            await one.breakers.run_once()
            await other.breakers.run_once()
            one.hear(target, GOOD)
        other.hear(target, FAILED)
        await other.breakers.run_once()
        assert one.open() == {target.target_id: 3}, "the first failure after a closing that nothing has proven"
        await one.breakers.run_once()
        world.sql("delete from bucketd.holds")
        one.hear(target, *[FAILED] * 30)
        await one.breakers.run_once()
        assert one.open() == {}, "calls that ended while it was open say nothing"


async def test_an_opening_outlives_an_outage_of_postgres_for_a_while(world: World) -> None:
    async with ear(world, replace(RULES, window_s=1)) as one:
        kept, stale = one.target("kept"), one.target("stale")
        one.hear(stale, *[FAILED] * 20)
        world.sql("alter table bucketd.holds rename to gone")
        with pytest.raises(psycopg.Error):
            await one.breakers.run_once()
        one.breakers.health.suspects[stale.target_id] = one.breakers.health.suspects[stale.target_id]._replace(
            since_s=0.0
        )
        one.hear(kept, *[FAILED] * 20)
        world.sql("alter table bucketd.gone rename to holds")
        await one.breakers.run_once()
        assert one.open() == {kept.target_id: 1}, "what was true long ago need not be true now"


async def test_nothing_is_remembered_of_targets_that_are_well_and_no_longer_called(world: World) -> None:
    async with ear(world, replace(RULES, window_s=1, remember_s=0.0)) as one:
        well, silent = one.target("well"), one.target("silent")
        one.hear(well, GOOD)
        one.hear(silent, NOTHING)
        for seen in one.breakers.health._seen.values():
            seen.window.last_s -= 3
        await one.breakers.run_once()
        assert list(one.breakers.health._seen) == [silent.target_id], "a row of silence may take days"
