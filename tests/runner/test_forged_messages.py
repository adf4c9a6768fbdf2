"""Messages that no node sent: absorbed, acknowledged, counted, and nothing runs that was not due. What chaos puts into queues."""

from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from bucketd.store.fires import encode_message
from bucketd.store.keys import GROUP
from tests.chaos.faults import messages
from tests.chaos.faults.messages import COUNTS, FORGES, Forged, Known
from tests.runner.conftest import World
from tests.support.target import Target
from tests.support.waiting import wait_until

EVERY_S = 60


@pytest.fixture
def known(world: World, hook: int) -> list[Known]:
    """Two schedules of a minute, of which the second has had another timing until a while ago."""
    ids = [world.schedule(hook, phase=phase) for phase in (0, 17)]
    until_s = world.now_s - 300
    world.sql(
        "insert into bucketd.schedule_versions select id, 1, spec_id, 5, 0, created_at, to_timestamp(%s) from bucketd.schedules"
        " where id = %s",
        until_s,
        ids[1],
    )
    world.sql("alter table bucketd.schedules disable trigger user")
    world.sql(
        "update bucketd.schedules set timing_version = 2, timing_from = to_timestamp(%s) where id = %s", until_s, ids[1]
    )
    world.sql("alter table bucketd.schedules enable trigger user")
    return [Known(ids[0], 1, EVERY_S, 0), Known(ids[1], 2, EVERY_S, 17), Known(ids[1], 1, EVERY_S, 5, until_s)]


def put(world: World, forged: list[Forged]) -> None:
    random = Random(3)
    for partition, raw in forged:
        world.redis.xadd(world.keys.queue(partition, random.random() < 0.3), {b"m": raw, **random.choice(COUNTS)})


def due(known: list[Known], now_s: float) -> set[tuple[UUID, int]]:
    """What may run: of the last minute, by living timings."""
    return {
        (one.id, at) for one in known if one.until_s is None for at in (one.before(now_s), one.before(now_s) - EVERY_S)
    }


@pytest.mark.parametrize("keeps", [True, False])
async def test_copies_in_another_order_do_what_their_originals_would(
    keeps: bool, world: World, target: Target, hook: int
) -> None:
    schedules = [world.schedule(hook) for _ in range(3)]
    fires = [world.fire(schedule, world.now_s - 5) for schedule in schedules]
    for fire in fires:
        world.put_raw(encode_message(fire[15], [fire]))
    stream = world.keys.queue(0)
    world.redis.xgroup_create(stream, GROUP, id="0")
    world.redis.xreadgroup(GROUP, "dead", {stream: ">"}, count=1)
    async with Redis.from_url(world.settings.redis_url.get_secret_value()) as redis:
        assert await messages.reorder(redis, stream, keeps=keeps) == 2, "what is read stays as it is"
    entries: Any = world.redis.xrange(stream)
    raws = [fields[b"m"] for _, fields in entries]
    first, second, third = (encode_message(fire[15], [fire]) for fire in fires)
    assert raws == ([first, second, third, third, second] if keeps else [first, third, second])
    async with world.runner() as runner:
        await world.until({"succeeded": 3})
        await world.until_quiet()
        assert runner.totals["refused_duplicate"] == (2 if keeps else 0)
    assert len(target.runs) == 3


@pytest.mark.parametrize("name", FORGES)
async def test_what_was_forged_does_nothing_that_was_not_due(
    name: str, world: World, target: Target, known: list[Known]
) -> None:
    begun_s = world.now_s
    forged = FORGES[name](known, begun_s, Random(7))
    assert forged
    put(world, [*forged, *forged])
    async with world.runner(concurrency=64, runner_heartbeat_s=0.5, runner_dead_after_s=120.0) as runner:
        if name == "early ones":
            await wait_until(lambda: runner.totals["kept"], 10, "early fires to be waited for")
            world.shift_clock("61 seconds")  # all that are waited for are due, and most not late
            await wait_until(lambda: world.runs(), 10, "those to run")
            world.shift_clock("115 seconds")  # and all that are waited for since; less than a runner may be silent
        await world.until_quiet(20)
        totals = Counter(runner.totals)
    assert world.pending() == 0
    made = {(row["schedule_id"], int(row["scheduled_at"].timestamp())) for row in world.runs()}
    allowed = due(known, begun_s) | due(known, world.now_s)
    assert made <= allowed
    assert len(target.runs) == len(made), "one call a run"
    refused = {
        reason.removeprefix("refused_"): count for reason, count in totals.items() if reason.startswith("refused_")
    }
    if name == "duplicates":
        assert made == allowed & made != set()
        assert refused["duplicate"] > 0
        assert refused["late"] > 0
    elif name == "early ones":
        assert made != set()
        assert refused["early"] > 0, "too far ahead to wait for"
    elif name == "ancient ones":
        assert made == set()
        assert refused.keys() == {"version"}, "no version of theirs held then"
    elif name == "fires of nobody":
        assert (made, sum(refused.values())) == (set(), 2 * messages.STRANGERS)
    else:
        assert made == set()
        assert totals["malformed"] == 2 * len(forged)
