"""Outages of hours, days and weeks: what follows is what an oracle says, whichever part was away."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bucketd.embedded import Server, start_redis
from bucketd.store.statements import statements
from tests.support.cluster import Cluster
from tests.support.evidence import Row, calls, rows
from tests.support.outage import DAY_S, Outage, Story
from tests.support.outage_oracle import Outcome
from tests.support.waiting import wait_until

LENGTHS = {"3 hours": 10_800, "3 days": 3 * DAY_S, "40 days": 40 * DAY_S}
# One of each part and of each length in every run of the suite; the rest by `make long`.
EACH = {("scheduler", "3 days"), ("runners", "3 hours"), ("redis", "40 days")}
CASES = [
    pytest.param(part, length, marks=() if (part, length) in EACH else pytest.mark.long)
    for part in ("scheduler", "runners", "redis")
    for length in LENGTHS
]
LOOKED_S = 16  # after the return; until then minutes, quarters and hours have fallen due again
SOON_S, LATEST_S = 1, 38  # after the return: everything of the outage is judged in between
OWED = "select count(*) from bucketd.backfills where finished_at is null"


@asynccontextmanager
async def away(part: str, outage: Outage, redis: Server, directory: Path, stack: ExitStack) -> AsyncIterator[None]:
    """The part is not there inside, and back afterwards."""
    cluster = outage.cluster
    if part == "redis":
        redis.stop()
        yield
        # The nodes are there, and Postgres is: they made days and let others go all the time.
        cluster.postgres.execute(statements("retention")["raise_floor"].encode(), {"retention_days": 30})
        cluster.postgres.execute(statements("retention")["make_days"].encode(), {"days_ahead": 7})
        await cluster.until(outage.end_s + 2)  # they read the clock twice a second
        password = urlsplit(redis.url).password
        assert password is not None
        (directory / "password").write_text(password)
        stack.enter_context(start_redis(directory, port=redis.port))
    else:
        for process in cluster.nodes if part == "scheduler" else cluster.runners:
            process.kill9()
        if part == "runners":  # nodes read a clock that is moved as one that runs: they must not see it jump
            for process in cluster.nodes:
                process.kill9()
        yield
        cluster.start_node()
        if part == "runners":
            cluster.start_runner()
    await cluster.ready()


def complaints(outage: Outage, story: Story, found: list[Row]) -> list[str]:
    """What of a schedule's rows is not as expected: of the outage itself, and of what fell due when it was over."""
    expected = story.expected(judged_s=outage.end_s + SOON_S, through_s=outage.through_s, oldest_s=outage.oldest_s)
    patient = story.expected(judged_s=outage.end_s + LATEST_S, through_s=outage.through_s, oldest_s=outage.oldest_s)
    assert expected == patient, f"{story.name}: the verdict hangs on how fast a process starts"
    told = []
    rows_of_it = [shape(row, story) for row in found if row.at + row.jitter_s <= outage.through_s]
    if rows_of_it != expected:
        told.append(f"{story.name}: expected {brief(expected)}, got {brief(rows_of_it)}")
    on_time = {
        (row.at, row.status, row.origin, row.missed) for row in found if row.at + row.jitter_s > outage.through_s
    }
    again = {(float(at_s), "succeeded", "fire", 0) for at_s in outage.slots_after(story, LOOKED_S)}
    if not again <= on_time or any(one[1:] != ("succeeded", "fire", 0) for one in on_time):
        told.append(f"{story.name}: expected to go on with {sorted(again)}, got {sorted(on_time)}")
    return told


def shape(row: Row, story: Story) -> Outcome:
    """A late slot that a runner took from the queue is the same made-up run as one that settling found."""
    made_up = "catch_up" if story.policy.misfire == "catch_up" else "misfire"
    kinds = {
        ("fire", None): None, ("settle", None): None, ("late", None): made_up, ("settle", "misfire"): "misfire",
        ("catch_up", "catch_up"): "catch_up", ("settle", "past_deadline"): "past_deadline",
    }  # fmt: skip
    return Outcome(int(row.at), row.status, kinds[row.origin, row.reason], row.missed)


def brief(outcomes: list[Outcome]) -> str:
    """The ends of a long list."""
    shown = [tuple(one) for one in outcomes]
    return str(shown) if len(shown) < 5 else f"{len(shown)}: {shown[:2]} .. {shown[-2:]}"


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("part", "length"), CASES)
async def test_what_follows_an_outage_is_the_oracles_answer(
    cluster: Cluster, own_redis: Server, tmp_path: Path, part: str, length: str
) -> None:
    outage = Outage(cluster, LENGTHS[length])
    outage.turn_to(outage.begin_s)
    stood = outage.begin_s // 60 * 60 - 1
    cluster.sql("update bucketd.partitions set settled_through = to_timestamp(%s)", stood)
    with ExitStack() as stack:
        await cluster.start(nodes=1, runners=1)
        outage.prepare()
        async with away(part, outage, own_redis, tmp_path, stack):
            outage.edit()
            if part == "runners":
                outage.fill_queues()
            outage.turn_to(outage.end_s)
        await cluster.settled(outage.through_s + 1, 60)
        await wait_until(lambda: not cluster.one(OWED), 60, "what is owed to be expanded")
        assert cluster.now() < outage.end_s + LATEST_S, "the machine was too slow to judge in time"
        await cluster.until(outage.end_s + LOOKED_S)
        await cluster.quiet(60)
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows(cluster):
            found[row.key[1]].append(row)
        wrong = [line for story in outage.stories for line in complaints(outage, story, found[story.name])]
        assert not wrong, f"{len(wrong)} of {len(outage.stories)} schedules:\n" + "\n".join(wrong)
        ran = sorted((row.key, row.at) for rows_ in found.values() for row in rows_ if row.status == "succeeded")
        assert sorted((call.key, call.at) for call in calls(cluster)) == ran, "a call for each run, and one only"
