"""Each Lua script by itself on a real server: what it refuses, what it keeps whole, what a repeat does."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from bucketd.store import buckets, leases, scripts
from bucketd.store.buckets import BucketId, Drained, Entries, Fence, FenceState
from bucketd.store.fires import FIRE, decode_message, tail
from bucketd.store.keys import GROUP, Keys

MINUTE = 29_000_000
START_MS = MINUTE * 60_000
P = 37


def fire(n: int) -> bytes:
    """A fire that differs from every other."""
    return n.to_bytes(16, "big") + bytes(6) + tail(MINUTE * 60 + n, None, None)


def flat(count: int, step_ms: int = 1_000) -> list[int | bytes]:
    """Scores and members of `count` fires, a second apart."""
    return [part for n in range(count) for part in (START_MS + n * step_ms, fire(n))]


@pytest.fixture
def token() -> str:
    return uuid4().hex


async def plan(redis: Redis, keys: Keys, entries: Entries, fences: list[Fence]) -> list[FenceState]:
    """Adds fires, then marks that they are there."""
    await buckets.add(redis, keys, entries)
    return await buckets.mark(redis, keys, fences, compare=True)


async def fill(redis: Redis, keys: Keys, fence: Fence, count: int) -> FenceState:
    """Raises the fence and plans `count` fires under it."""
    await scripts.run(redis, "fence", [keys.fence(P)], [fence.epoch, fence.token])
    planned = fence._replace(plan_seq=1)
    return (await plan(redis, keys, {BucketId(P, MINUTE): flat(count)}, [planned]))[0]


async def drain(
    redis: Redis, keys: Keys, fence: Fence, now_ms: int, *, batch: int = 1_000, cap: int = 50_000, compare: bool = True
) -> Drained:
    found = await buckets.drain(redis, keys, [(fence, BucketId(P, MINUTE))], now_ms, batch=batch, queue_cap=cap, compare=compare)
    return found[0]


async def queued(redis: Redis, keys: Keys) -> list[bytes]:
    """Fires in the queue, in order, from messages that decode."""
    fires: list[bytes] = []
    messages: list[Any] = await redis.xrange(keys.queue(P)) or []
    for _, fields in messages:
        partition, packed = decode_message(fields[b"m"])
        assert partition == P
        fires += [packed[i : i + FIRE.size] for i in range(0, len(packed), FIRE.size)]
    return fires


async def test_a_fence_is_raised_and_never_lowered(redis: Redis, keys: Keys, token: str) -> None:
    async def raise_to(epoch: int, by: str) -> int:
        return int(await scripts.run(redis, "fence", [keys.fence(P)], [epoch, by]))

    assert await raise_to(7, token) == 1
    assert await raise_to(7, token) == 1, "a repeat is harmless"
    assert await raise_to(6, "other") == 0
    assert await redis.hgetall(keys.fence(P)) == {b"epoch": b"7", b"token": token.encode(), b"plan_seq": b"0"}
    assert await raise_to(10, "other") == 1, "10 is above 7 by number, not by text"
    assert await redis.hmget(keys.fence(P), "epoch", "token") == [b"10", b"other"]


async def test_a_new_epoch_begins_its_plans_anew(redis: Redis, keys: Keys, token: str) -> None:
    assert await fill(redis, keys, Fence(P, 3, token, 0), 1) is FenceState.HELD
    assert await redis.hget(keys.fence(P), "plan_seq") == b"1"
    await scripts.run(redis, "fence", [keys.fence(P)], [4, token])
    assert await redis.hget(keys.fence(P), "plan_seq") == b"0"


FENCES: Sequence[tuple[dict[str, object], FenceState]] = [
    ({"epoch": 5, "token": "me", "plan_seq": 2}, FenceState.HELD),
    ({"epoch": 5, "token": "me", "plan_seq": 9}, FenceState.HELD),  # planned since the drain was sent
    ({"epoch": 6, "token": "you", "plan_seq": 0}, FenceState.ZOMBIE),
    ({"epoch": 6, "token": "me", "plan_seq": 2}, FenceState.ZOMBIE),
    ({"epoch": 5, "token": "you", "plan_seq": 2}, FenceState.ZOMBIE),
    ({"epoch": 40, "token": "you", "plan_seq": 2}, FenceState.ZOMBIE),
    ({"epoch": 4, "token": "you", "plan_seq": 2}, FenceState.LOST),
    ({}, FenceState.LOST),
]


@pytest.mark.parametrize(
    ("standing", "state"), [*FENCES, ({"epoch": 5, "token": "me", "plan_seq": 1}, FenceState.LOST)]
)
async def test_a_drain_compares_epoch_token_and_plan(
    redis: Redis, keys: Keys, standing: dict[str, object], state: FenceState
) -> None:
    await redis.zadd(keys.bucket(P, MINUTE), {fire(0): START_MS})
    if standing:
        await redis.hset(keys.fence(P), mapping=standing)  # type: ignore[arg-type]
    found = await drain(redis, keys, Fence(P, 5, "me", 2), START_MS)
    assert found.state is state
    held = state is FenceState.HELD
    assert found.fires == held
    assert len(await queued(redis, keys)) == held, "who is refused moves nothing"
    assert await redis.zcard(keys.bucket(P, MINUTE)) == (not held)
    if not held:
        assert (await drain(redis, keys, Fence(P, 5, "me", 2), START_MS, compare=False)).fires == 1


@pytest.mark.parametrize(
    ("standing", "state"), [*FENCES, ({"epoch": 5, "token": "me", "plan_seq": 0}, FenceState.LOST)]
)
async def test_a_mark_compares_too_and_leaves_a_foreign_fence_alone(
    redis: Redis, keys: Keys, standing: dict[str, object], state: FenceState
) -> None:
    if standing:
        await redis.hset(keys.fence(P), mapping=standing)  # type: ignore[arg-type]
    before = await redis.hgetall(keys.fence(P))
    found = await plan(redis, keys, {}, [Fence(P, 5, "me", 2)])
    assert found == [state]
    if state is not FenceState.HELD:
        assert await redis.hgetall(keys.fence(P)) == before


async def test_an_old_owner_that_marks_late_does_not_hide_a_loss(redis: Redis, keys: Keys) -> None:
    """Two plans were acknowledged, Redis lost the second: neither the third plan nor a drain may pass."""
    await redis.hset(keys.fence(P), mapping={"epoch": 5, "token": "me", "plan_seq": 1})
    assert await plan(redis, keys, {}, [Fence(P, 5, "me", 3)]) == [FenceState.LOST]
    assert (await drain(redis, keys, Fence(P, 5, "me", 2), START_MS)).state is FenceState.LOST


async def test_never_early_and_the_next_due_time_is_told(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 5)
    assert await drain(redis, keys, fence, START_MS - 1) == Drained(FenceState.HELD, 0, START_MS, 0)
    assert await drain(redis, keys, fence, START_MS + 1_999) == Drained(FenceState.HELD, 2, START_MS + 2_000, 2)
    assert await queued(redis, keys) == [fire(0), fire(1)]
    assert await drain(redis, keys, fence, START_MS + 60_000) == Drained(FenceState.HELD, 3, None, 5)
    assert await queued(redis, keys) == [fire(n) for n in range(5)], "each once, oldest first"
    assert not await redis.exists(keys.bucket(P, MINUTE))


async def test_a_batch_is_a_message(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 25)
    for left in (15, 5, 0):
        found = await drain(redis, keys, fence, START_MS + 60_000, batch=10)
        assert (found.next_due_ms is None) == (left == 0)
    assert await redis.xlen(keys.queue(P)) == 3
    assert sorted(await queued(redis, keys)) == sorted(fire(n) for n in range(25))


async def test_the_cap_of_the_queue_is_exact_and_what_is_beyond_stays(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 25)
    found = [await drain(redis, keys, fence, START_MS + 60_000, batch=8, cap=20) for _ in range(4)]
    assert [one.fires for one in found] == [8, 8, 4, 0]
    assert [one.queue_fires for one in found] == [8, 16, 20, 20]
    assert found[-1].next_due_ms == START_MS + 20_000
    assert await redis.zcard(keys.bucket(P, MINUTE)) == 5
    messages: Any = await redis.xrange(keys.queue(P), count=1)
    await redis.xdel(keys.queue(P), messages[0][0])  # a runner is done with eight
    assert (await drain(redis, keys, fence, START_MS + 60_000, batch=8, cap=20)).fires == 5


async def test_an_emptied_queue_counts_as_empty(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 25)
    await redis.xgroup_create(keys.queue(P), GROUP, id="0", mkstream=True)
    await drain(redis, keys, fence, START_MS + 60_000, batch=20, cap=20)
    await redis.xtrim(keys.queue(P), maxlen=0, approximate=False)
    assert (await drain(redis, keys, fence, START_MS + 60_000, cap=20)).queue_fires == 5


@pytest.mark.parametrize("place", ["first", "last", "alone"])
async def test_a_foreign_message_stops_nobody(redis: Redis, keys: Keys, token: str, place: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 20)
    if place != "last":
        await redis.xadd(keys.queue(P), {"hello": "world"})
    if place != "alone":
        await drain(redis, keys, fence, START_MS + 60_000, batch=10, cap=15)
    if place == "last":
        await redis.xadd(keys.queue(P), {"m": b"\xff"})
    found = await drain(redis, keys, fence, START_MS + 60_000, cap=15)
    assert found.state is FenceState.HELD
    assert found.fires > 0
    assert found.queue_fires <= 15


async def test_two_partitions_of_a_shard_share_the_cap(redis: Redis, keys: Keys, token: str) -> None:
    other = P + 16
    assert keys.queue(other) == keys.queue(P)
    for partition in (P, other):
        await scripts.run(redis, "fence", [keys.fence(partition)], [1, token])
        await plan(redis, keys, {BucketId(partition, MINUTE): flat(10)}, [Fence(partition, 1, token, 1)])
    wanted = [(Fence(partition, 1, token, 1), BucketId(partition, MINUTE)) for partition in (P, other)]
    found = await buckets.drain(redis, keys, wanted, START_MS + 60_000, batch=8, queue_cap=12, compare=True)
    assert [one.fires for one in found] == [8, 4]


async def test_xadd_comes_before_zrem(redis: Redis, keys: Keys, token: str) -> None:
    """A script that fails halfway is not rolled back. The queue is made unwritable: the fires must still be in the bucket."""
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 3)
    top = f"{2**64 - 1}-{2**64 - 1}"
    await redis.xadd(keys.queue(P), {"full": "stream"}, id=top)  # no id is left above this one
    with pytest.raises(Exception, match=r"exhausted|ID"):
        await drain(redis, keys, fence, START_MS + 60_000)
    assert await redis.zcard(keys.bucket(P, MINUTE)) == 3


async def test_planning_twice_changes_nothing(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 5)
    await plan(redis, keys, {BucketId(P, MINUTE): flat(5)}, [fence._replace(plan_seq=2)])
    assert await redis.zcard(keys.bucket(P, MINUTE)) == 5
    assert 0 < await redis.ttl(keys.bucket(P, MINUTE)) <= buckets.KEEP_S


@pytest.mark.parametrize("most", [50_000, 1_000])
async def test_many_members_go_in_several_commands_and_pipelines(
    redis: Redis, keys: Keys, token: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(buckets, "PIPELINE_MEMBERS", most)
    await scripts.run(redis, "fence", [keys.fence(P)], [1, token])
    entries = {BucketId(P, MINUTE): flat(2_500, 1), BucketId(P, MINUTE + 1): flat(10), BucketId(P + 16, MINUTE): flat(1_200)}
    assert await plan(redis, keys, entries, [Fence(P, 1, token, 1)]) == [FenceState.HELD]
    counts = [await redis.zcard(keys.bucket(*bucket)) for bucket in entries]
    assert counts == [2_500, 10, 1_200]
    assert await redis.zscore(keys.bucket(P, MINUTE), fire(2_499)) == START_MS + 2_499


async def test_an_error_of_one_key_is_raised(redis: Redis, keys: Keys, token: str) -> None:
    await redis.set(keys.bucket(P, MINUTE), "no sorted set")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await fill(redis, keys, Fence(P, 1, token, 0), 1)


async def test_a_server_that_forgot_the_scripts_gets_them_again(redis: Redis, keys: Keys, token: str) -> None:
    fence = Fence(P, 1, token, 1)
    await fill(redis, keys, fence, 3)
    await redis.script_flush()
    assert (await drain(redis, keys, fence, START_MS + 60_000)).fires == 3
    await redis.script_flush()
    assert await scripts.run(redis, "fence", [keys.fence(P)], [1, token]) == 1


async def test_leases_are_taken_renewed_and_released_by_their_holder_alone(redis: Redis, keys: Keys) -> None:
    me, you = uuid4(), uuid4()
    assert await leases.take(redis, keys, [1, 2, 17], me, 10) == [1, 2, 17]
    assert await leases.take(redis, keys, [2, 3], you, 10) == [3]
    assert await leases.renew(redis, keys, [1, 2, 3, 17, 200], me, 20) == ([3, 200], [])
    assert 19 <= await redis.ttl(keys.lease(1)) <= 20
    assert await redis.ttl(keys.lease(3)) <= 10, "a foreign lease is not prolonged"
    await leases.release(redis, keys, [1, 3], me)
    assert await redis.get(keys.lease(1)) is None
    assert await redis.get(keys.lease(3)) == you.hex.encode()


async def test_fences_as_they_stand(redis: Redis, keys: Keys) -> None:
    me = uuid4()
    assert await leases.raise_fences(redis, keys, {1: 4, 2: 9}, me) == []
    assert await leases.fences(redis, keys, [1, 2, 3]) == {1: (4, 0), 2: (9, 0), 3: None}
    assert await leases.raise_fences(redis, keys, {1: 3, 2: 10}, uuid4()) == [1]
    assert await leases.fences(redis, keys, [1, 2]) == {1: (4, 0), 2: (10, 0)}
