"""Redis's clock is set while everything runs: what it alone dates (leases, idle times, places under limits) must not stand still."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from bucketd.embedded import Server, start_redis
from bucketd.runner.standstill import Standstill
from bucketd.store import leases, queues
from bucketd.store.config import Settings
from bucketd.store.keys import GROUP, Keys
from bucketd.store.limits import Ask, Limit, Report, report
from bucketd.store.queues import Pending
from tests.runner.conftest import World
from tests.support import faketime
from tests.support.faketime import HOUR_S, FakeClock
from tests.support.target import Target
from tests.support.waiting import wait_until

LEASE_S = 0.6
SLACK_S = 60.0  # of a clock that is looked at, to one that is an hour off


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    """An hour ahead: a test sets it back to what is right."""
    faketime.needed()
    clock = FakeClock(tmp_path, cached=False)
    clock.jump(HOUR_S)
    return clock


@pytest.fixture
def server(clock: FakeClock, tmp_path: Path) -> Iterator[Server]:
    with clock.redis():
        server = start_redis(tmp_path / "redis")
    with server:
        yield server


@pytest.fixture
async def redis(server: Server) -> AsyncIterator[Redis]:
    client: Redis = Redis.from_url(server.url)
    yield client
    await client.aclose()


async def set_back(clock: FakeClock, redis: Redis) -> None:
    """By an hour, while the server runs."""
    before_s, _ = await redis.time()
    clock.jump(0)
    now_s, _ = await redis.time()
    assert now_s - before_s == pytest.approx(-HOUR_S, abs=SLACK_S)


async def test_the_lease_of_a_dead_owner_ends_though_the_clock_went_back(clock: FakeClock, redis: Redis) -> None:
    keys, dead, heir = Keys("t"), uuid4(), uuid4()
    assert await leases.take(redis, keys, [1, 2], dead, 10.0) == [1, 2]
    await set_back(clock, redis)
    assert await redis.pttl(keys.lease(1)) > 3_000_000
    taken: set[int] = set()

    async def takes_both() -> bool:
        taken.update(await leases.take(redis, keys, [1, 2], heir, 1.0))
        return taken == {1, 2}

    await wait_until(takes_both, 10, "the partitions of the dead to be free")


async def test_a_living_owner_keeps_a_lease_that_somebody_else_wants(redis: Redis) -> None:
    keys, owner, other = Keys("t"), uuid4(), uuid4()
    assert await leases.take(redis, keys, [1], owner, 60.0) == [1]
    assert await leases.take(redis, keys, [1], other, 1.0) == []
    assert await redis.pttl(keys.lease(1)) > 50_000, (
        "another's lease is as long as he wants it, within what settings allow"
    )
    await redis.pexpire(keys.lease(1), 3_600_000)
    assert await leases.take(redis, keys, [1], other, 1.0) == []
    assert await leases.renew(redis, keys, [1], owner, 60.0) == ([], [])


async def test_the_message_of_a_dead_runner_is_taken_over_though_the_clock_went_back(
    world: World, target: Target, clock: FakeClock, server: Server, redis: Redis
) -> None:
    moved = World(world.settings.model_copy(update={"redis_url": Settings.load({}, redis_url=server.url).redis_url}))
    schedule = moved.schedule(moved.target(target.url))
    moved.put([moved.fire(schedule, moved.now_s - 5)])
    stream = moved.keys.queue(schedule.bytes[15])
    moved.redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
    assert moved.redis.xreadgroup(GROUP, "dead", {stream: ">"}, count=1)
    await set_back(clock, redis)
    async with (
        moved.runner(),
        moved.runner(),
    ):  # one that corrects what another has corrected would never come to an end
        await moved.until({"succeeded": 1})
        await moved.until_quiet()
    moved.close()


async def test_a_corrected_idle_time_is_what_everybody_sees(redis: Redis) -> None:
    await redis.xadd("s", {"m": b"1"})
    await redis.xgroup_create("s", GROUP, id="0")
    await redis.xreadgroup(GROUP, "dead", {"s": ">"})
    (before,) = await queues.pending(redis, ["s"], count=9)
    await queues.redate(redis, [before._replace(idle_ms=before.idle_ms + 60_000)])
    (after,) = await queues.pending(redis, ["s"], count=9)
    assert after[:3] + after[4:] == before[:3] + before[4:]
    assert after.idle_ms >= 60_000
    await redis.xack("s", GROUP, after.entry_id)
    await queues.redate(redis, [after])
    assert await queues.pending(redis, ["s"], count=9) == []


async def test_places_under_limits_are_given_again_a_lease_after_the_clock_went_back(
    clock: FakeClock, redis: Redis
) -> None:
    keys, cap, rate = Keys("t"), Limit("target:1", 5), Limit("rate:1", 200, is_rate=True)
    numbers: dict[str, int] = {}

    async def given(caller: str, wanted: int, held: int) -> int:
        number = numbers[caller] = numbers.get(caller, 0) + 1
        asks = [Ask(wanted, (cap, rate))]
        places = await report(
            redis, keys, Report(caller, number, number - 1, {cap: held, rate: 0}, asks), lease_s=LEASE_S
        )
        return sum(places.given) if places is not None else 0

    async def everything() -> bool:
        await asyncio.sleep(LEASE_S / 6)
        return await given("one", 4, 1) == 4  # it has one all the time

    await wait_until(everything, 20, "places a lease after Redis was empty")
    assert await given("two", 2, 0) == 0
    assert await given("one", 0, 3) == 0
    await wait_until(lambda: given("two", 2, 0), 10, "the places that one gave back")
    await set_back(clock, redis)  # `two` has died with its places
    assert await given("one", 1, 3) == 0, "who holds what is not known for a lease"
    await wait_until(everything, 20, "all places, those of the dead too")


def pending(idle_ms: int, *, consumer: bytes = b"c", deliveries: int = 1) -> Pending:
    return Pending("s", b"1-0", consumer, idle_ms, deliveries)


@pytest.mark.parametrize(
    ("before", "after", "passed_s", "stands"),
    [
        (pending(1_000), pending(6_000), 5.0, False),
        (pending(1_000), pending(1_000), 5.0, True),
        (pending(0), pending(0), 5.0, True),
        (pending(9_000), pending(0), 5.0, True),
        (pending(1_000), pending(3_000_000), 5.0, False),
        (pending(9_000), pending(0, consumer=b"d"), 5.0, False),
        (pending(9_000), pending(0, deliveries=2), 5.0, False),
        (pending(0), pending(0), 0.001, False),
    ],
    ids=["grows", "stands", "in the future", "went back", "jumped ahead", "taken over", "delivered again", "looked at once more"],
)  # fmt: skip
def test_idle_time_that_stands_still(before: Pending, after: Pending, passed_s: float, stands: bool) -> None:
    one, other = Standstill(), Standstill()
    assert one.found([before], 90.0, 100.0) == other.found([before], 90.0, 100.0) == []
    found = one.found([after], 100.0 + passed_s, 120.0)
    assert found == ([after._replace(idle_ms=before.idle_ms + 5_000)] if stands else [])
    assert other.found(found, 100.0 + passed_s, 120.0) == [], "what one has corrected is right for the other"


def test_an_answer_that_was_long_on_its_way_is_no_standstill() -> None:
    look = Standstill()
    assert look.found([pending(0)], 100.0, 100.0) == []
    assert look.found([pending(24_900)], 105.0, 125.0) == []  # the question was
    assert look.found([pending(30_000)], 130.0, 130.0) == []
