"""Ten thousand schedules are put, edited, paused, resumed and deleted at random: no ghost, no loss.

The services work on real stores (timeline.py), the writes are drawn (draws.py) and sent in bulk (edits.py), and the model knows
what they promise (tests/support/edit_model.py). BUCKETD_TEST_SEED draws another timeline.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from bucketd.scheduler import settler
from tests.scheduler.edits import Edits
from tests.scheduler.timeline import AFTERWARDS, STEPS, Timeline
from tests.scheduler.world import World
from tests.support.edit_model import Fate

SEED = int(os.environ.get("BUCKETD_TEST_SEED", "3"))


class Row(NamedTuple):
    """What is compared of a run."""

    missed: int
    offset_s: int
    status: str


def complaints(rows: dict[int, Row], fates: dict[int, Fate], start_s: int) -> Iterator[str]:
    """What is wrong with one schedule; nothing, if all is well. Instants are shown in seconds after `start_s`."""
    for at, row in rows.items():
        if at not in fates:
            yield f"ghost at {at - start_s}: {row}"
        elif fates[at].offset_s not in (None, row.offset_s):
            yield f"due at {at - start_s} + {row.offset_s}, expected + {fates[at].offset_s}"
    lacking = [at for at, fate in fates.items() if fate.sure and at not in rows]
    perhaps = sum(1 for at, fate in fates.items() if not fate.sure and at not in rows)
    counted = sum(row.missed for row in rows.values())
    if not len(lacking) <= counted <= len(lacking) + perhaps:
        some = [at - start_s for at in sorted(lacking)[:5]]
        yield f"{len(lacking)} without a row (and perhaps {perhaps} more), but {counted} are counted: {some}"
    elif lacking and max(lacking) > max(at for at, row in rows.items() if row.missed):
        yield f"counted in a row that is older than {max(lacking) - start_s}"


def load_rows(world: World) -> dict[UUID, dict[int, Row]]:
    """All runs by schedule and instant."""
    found: defaultdict[UUID, dict[int, Row]] = defaultdict(dict)
    for id, at, *rest in world.rows.sql(
        "select schedule_id, extract(epoch from scheduled_at)::bigint, missed, jitter_offset_s, status::text from bucketd.runs"
    ):
        found[id][at] = Row(*rest)
    return found


@pytest_asyncio.fixture
async def timeline(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Timeline]:
    """A clock that stands, and a stand-in for the runners."""
    monkeypatch.setattr(
        settler, "PATIENCE_S", math.inf
    )  # seconds of the machine: a slow one would draw another timeline
    dsn = world.settings.dsn.get_secret_value()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        timeline = Timeline(world, connection, SEED)
        await timeline.begin()
        yield timeline


@pytest.mark.timeout(400)
@pytest.mark.parametrize("names", [2_500, pytest.param(10_000, marks=pytest.mark.long)])
async def test_random_sequences_of_edits_leave_no_ghost_and_no_loss(
    names: int, world: World, timeline: Timeline
) -> None:
    dsn = world.settings.dsn.get_secret_value()
    edits = Edits(world.rows, dsn, SEED, names=names, start_s=timeline.start_s, steps=STEPS)
    for step in (*range(STEPS), *AFTERWARDS):
        await timeline.step(step, edits)
    assert timeline.settled_s() >= timeline.start_s + STEPS + 60
    rows = load_rows(world)
    wrong: list[str] = []
    kinds: Counter[str] = Counter()
    for history in (life for name in edits.names for life in name.lives):
        fates = history.fates(int(timeline.now_s) + 1, partial(timeline.decided_s, history.id.bytes[15]))
        found = rows.pop(history.id, {})
        shown = f"{history.id} {history.shown(timeline.start_s)}"
        wrong += [f"{text}; {shown}" for text in complaints(found, fates, timeline.start_s)]
        kinds.update("sure" if fate.sure else "either way" for fate in fates.values())
        kinds.update(row.status for row in found.values())
        kinds["counted"] += sum(row.missed for row in found.values())
    print(f"BUCKETD_TEST_SEED={SEED}: {edits.written} writes, start {timeline.start_s}, {dict(kinds)}")
    assert kinds["sure"] > 5 * names, "too little happened to say anything"
    assert kinds["either way"] < kinds["sure"] / 10, "too much is left open"
    assert min(kinds["counted"], kinds["deferred"], kinds["skipped"]) > 0, "settling had nothing to judge"
    assert not rows, f"runs of schedules that never were: {list(rows)[:5]}"
    assert not wrong, f"BUCKETD_TEST_SEED={SEED}: {len(wrong)} complaints\n" + "\n".join(wrong[:10])
