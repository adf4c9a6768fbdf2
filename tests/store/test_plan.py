"""The planner's two questions against a brute force over random schedules."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from struct import Struct
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from bucketd.store import plan
from bucketd.store.clock import utc
from bucketd.store.keys import PARTITIONS
from bucketd.store.plan import Heads, PhaseRange, mask_of
from bucketd.timing import EverySpec, parse_cron
from tests.support.rows import Rows

Answer = Counter[tuple[int, int, int, int, bytes]]


@pytest.fixture(scope="module")
def rows(shared: psycopg.Connection[Any]) -> Rows:
    return Rows(shared)


@pytest_asyncio.fixture
async def connection(shared: psycopg.Connection[Any]) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    password: dict[str, Any] = {"password": shared.info.password} if shared.info.password else {}
    async with await psycopg.AsyncConnection.connect(shared.info.dsn, autocommit=True, **password) as connection:
        yield connection


@pytest.fixture(scope="module")
def table(rows: Rows) -> list[dict[str, Any]]:
    """400 schedules of a few specs, some paused, some with jitter, some edited."""
    random.seed(7)
    with rows.connection.transaction():
        for _ in range(400):
            paused, jitter_s = random.random() < 0.2, random.choice([0, 0, 30])
            if random.random() < 0.5:
                rows.schedule(
                    parse_cron(random.choice(["* * * * *", "0 9 * * *"]))[0], paused=paused, jitter_s=jitter_s
                )
            else:
                every_s = random.choice([60, 3_600])
                rows.every(every_s, random.randrange(every_s), paused=paused, jitter_s=jitter_s)
        rows.sql("update bucketd.schedules set phase = phase + 1 where mod(spec_id, 2) = 0 and phase between 1 and 20")
    names = "id, partition_id, spec_id, due_phase, jitter_offset_s, timing_version, tenant_hash, paused"
    found = rows.sql(f"select {names} from bucketd.schedules")
    return [dict(zip(names.split(", "), row, strict=True)) for row in found]


def flat(found: list[Heads], shape: Struct) -> Answer:
    """Each schedule by itself: (place from 0, partition, due phase, jitter offset, head)."""
    answer = Answer()
    for partition, packed in found:
        for place, *phase, one in shape.iter_unpack(packed):
            answer[(place - 1, partition, *(phase or (0, 0)), one)] += 1
    return answer


def head(row: dict[str, Any]) -> bytes:
    packed: bytes = row["id"].bytes + row["timing_version"].to_bytes(4, "big") + row["tenant_hash"].to_bytes(2, "big")
    return packed


OWNED = [sorted(random.Random(n).sample(range(PARTITIONS), size)) for n, size in enumerate([0, 1, 85, 256])]


@pytest.mark.parametrize("owned", OWNED, ids=len)
async def test_whole(
    connection: psycopg.AsyncConnection[Any], rows: Rows, table: list[dict[str, Any]], owned: list[int]
) -> None:
    specs = [
        rows.spec(EverySpec(60)),
        rows.spec(parse_cron("* * * * *")[0]),
        9_999,
        rows.spec(parse_cron("0 9 * * *")[0]),
    ]
    expected = Counter(
        (specs.index(row["spec_id"]), row["partition_id"], 0, 0, head(row))
        for row in table
        if row["spec_id"] in specs and row["partition_id"] in owned and not row["paused"] and not row["jitter_offset_s"]
    )
    assert flat(await plan.whole(connection, specs, owned, 0), plan.WHOLE) == expected


@pytest.mark.parametrize("owned", OWNED, ids=len)
async def test_ranges(
    connection: psycopg.AsyncConnection[Any], rows: Rows, table: list[dict[str, Any]], owned: list[int]
) -> None:
    minutely, hourly, cron = (
        rows.spec(EverySpec(60)),
        rows.spec(EverySpec(3_600)),
        rows.spec(parse_cron("0 9 * * *")[0]),
    )
    wanted = [
        PhaseRange(minutely, 0, 60), PhaseRange(hourly, 3_590, 3_600), PhaseRange(hourly, 0, 900),
        PhaseRange(cron, 0, 1), PhaseRange(cron, 10, 20), PhaseRange(minutely, 5, 5), PhaseRange(9_999, 0, 10**10),
    ]  # fmt: skip
    expected = Counter(
        (place, row["partition_id"], row["due_phase"], row["jitter_offset_s"], head(row))
        for place, one in enumerate(wanted)
        for row in table
        if row["spec_id"] == one.spec_id and one.lo <= row["due_phase"] < one.hi
        and row["partition_id"] in owned and not row["paused"]
    )  # fmt: skip
    assert flat(await plan.ranges(connection, wanted, owned, 0), plan.RANGE) == expected


async def test_nothing_asked_nothing_found(connection: psycopg.AsyncConnection[Any]) -> None:
    assert await plan.whole(connection, [], range(PARTITIONS), 0) == []
    assert await plan.ranges(connection, [], range(PARTITIONS), 0) == []


async def test_what_has_ended_is_left_out(connection: psycopg.AsyncConnection[Any], rows: Rows) -> None:
    """Schedules whose end is long past stay in the table for good, and would be planned in vain each time their spec fires."""
    spec = EverySpec(86_400)
    now = int(rows.now())
    kept = {rows.schedule(spec, phase=5, ends_at=end) for end in (None, utc(now + 10))}
    ended = rows.schedule(spec, phase=5, ends_at=utc(now - 10))
    spec_id = rows.spec(spec)
    for shape, found in (
        (plan.WHOLE, await plan.whole(connection, [spec_id], range(PARTITIONS), now)),
        (plan.RANGE, await plan.ranges(connection, [PhaseRange(spec_id, 0, 10)], range(PARTITIONS), now)),
    ):
        heads = {UUID(bytes=one[-1][:16]) for _, packed in found for one in shape.iter_unpack(packed)}
        assert ended not in heads
        assert kept <= heads


def test_the_mask_is_read_by_get_bit(migrated: psycopg.Connection[Any]) -> None:
    for owned in OWNED:
        row = migrated.execute(
            "select array_agg(p order by p) from generate_series(0, 255) p where get_bit(%s::bytea, p) = 1",
            (mask_of(owned),),
        ).fetchone()
        assert row is not None
        assert (row[0] or []) == owned
