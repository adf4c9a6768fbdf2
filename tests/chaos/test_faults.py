"""What the faults themselves do, one by one, as far as it shows without a play. Of messages: tests/runner/test_forged_messages.py; of
hosts and clocks: tests/support/test_namespaces.py and test_faketime.py."""

import asyncio
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from tests.chaos.fault import Kind, Shape
from tests.chaos.faults import KINDS
from tests.chaos.faults.edits import EDGE_S, PERIODS_S, drawn, moment
from tests.chaos.faults.network import HOWS, Between, How
from tests.support.edit_model import Timing
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

SHAPE = Shape(nodes=3, runners=2, midnight_s=300)
SILENCE_S = 0.3  # an answer takes a millisecond
WAIT_S = 10


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_draw_depends_on_the_seed_alone_and_hits_what_is_there(kind: Kind) -> None:
    ones, others = ([kind.draw(Random(seed), SHAPE) for seed in range(20)] for _ in range(2))
    assert ones == others
    for fault in ones:
        assert fault.hits <= {*SHAPE.seats, "postgres", "redis", "target"}
        assert 0 <= fault.lasts_s <= 60
        assert fault.place


def test_names_are_unique() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)


async def connect(url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5)


def _went_on(how: How) -> tuple[bool, bool]:
    """Whether a statement that is sent meanwhile is carried out before the end, and whether its answer ever comes."""
    return how == "loses all to the client", how == "silent"


@pytest.mark.parametrize("how", [how for how in HOWS if how != "cut"])
async def test_a_silent_way_says_nothing_until_it_is_back(how: How, empty_dsn: str) -> None:
    carried_out, answered = _went_on(how)
    async with Proxy(empty_dsn) as way, await connect(way.url) as connection, await connect(empty_dsn) as direct:
        await connection.execute("create table t (i int)")
        fault = Between("node 0", "postgres", how, 1.0)
        fault._set(way, True)
        sent = asyncio.ensure_future(connection.execute("insert into t values (1)"))
        assert not (await asyncio.wait({sent}, timeout=SILENCE_S))[0]

        async def rows() -> int:
            return len(await (await direct.execute("select 1 from t")).fetchall())

        if carried_out:
            await wait_until(rows, WAIT_S, "the statement to arrive")
        else:
            assert await rows() == 0
        fault._set(way, False)
        if answered:
            await sent
        else:
            with pytest.raises(psycopg.OperationalError):
                await asyncio.wait_for(sent, WAIT_S)
        assert await rows() == (how != "loses all to the server")
        async with await connect(way.url) as another:
            assert await (await another.execute("select 2")).fetchone() == (2,)


async def test_a_cut_way_resets_what_is_open_and_refuses_what_comes(empty_dsn: str) -> None:
    async with Proxy(empty_dsn) as way, await connect(way.url) as connection:
        fault = Between("node 0", "postgres", "cut", 1.0)
        fault._set(way, True)
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("select 1")
        with pytest.raises(psycopg.OperationalError):
            await connect(way.url)
        fault._set(way, False)
        async with await connect(way.url) as another:
            assert await (await another.execute("select 2")).fetchone() == (2,)


def _timings() -> Iterator[Timing]:
    for every_s in PERIODS_S:
        for phase_s in range(every_s):
            yield Timing(every_s=every_s, phase_s=phase_s)


def test_a_storm_writes_at_both_sides_of_due_instants_and_nowhere_else() -> None:
    random, sides = Random(1), set()
    for timing in _timings():
        for _ in range(50):
            now_s = 1_796_000_000 + random.random() * 100
            at_s = moment(now_s, timing, random)
            assert timing.every_s is not None
            assert now_s <= at_s <= now_s + timing.every_s + 2 * EDGE_S
            away_s = (at_s - timing.phase_s + timing.every_s / 2) % timing.every_s - timing.every_s / 2
            assert abs(away_s) <= EDGE_S
            sides.add(away_s < 0)
    assert sides == {True, False}


def test_what_a_storm_puts_ends_with_it() -> None:
    planned = [drawn("storm", n, 1_796_000_000.5, Random(n)) for n in range(30)]
    assert {one.options["ends_at"].timestamp() for one in planned} == {1_796_000_001}
    assert len({one.timing for one in planned}) > 10
