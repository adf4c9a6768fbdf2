"""Replaying and discarding dead letters by the ten thousands: in steps that can be cut short, and at a rate."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from bucketd import Client, every
from bucketd.store.dead_letters import STRETCH
from tests.client.conftest import count

LETTERS = 20_000
assert LETTERS % STRETCH == 0
GAPS = (
    "select min(gap), max(gap) from (select extract(epoch from wake_at - lag(wake_at) over (order by wake_at))::float8 as gap"
    " from bucketd.runs where reason = 'replayed') g"
)


@pytest.fixture
def dead(client: Client, sql: psycopg.Connection[Any]) -> UUID:
    """A schedule with as many dead runs, a second apart, and a letter of each."""
    made = client.schedules.put("s", every("1m", phase=0), target="hook", paused=True).id
    sql.execute(
        "with target as materialized (select target_id, bucketd.bucketd_now() as now from bucketd.targets), died as ("
        "  insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, attempt, finished_at)"
        "  select date_trunc('second', now) - n * interval '1 second', %s, 'default', target_id, 'dead', 'fire', 5, now"
        "  from target, generate_series(1, %s) n returning *)"
        " insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, died_at)"
        " select schedule_id, scheduled_at, tenant, 's', target_id, 'null', 'attempts', attempt, finished_at from died",
        (made, LETTERS),
    )
    return made


def die_again(sql: psycopg.Connection[Any]) -> Callable[[int], None]:
    """What a target that fails at once does: after each step the first run of the replay is dead again, and has a new letter."""

    def die(_: int) -> None:
        sql.execute(
            "with died as (update bucketd.runs set status = 'dead', wake_at = null, finished_at = bucketd.bucketd_now(), attempt = 6"
            "  where (scheduled_at, schedule_id) = (select scheduled_at, schedule_id from bucketd.runs where wake_at is not null"
            "    order by wake_at limit 1) returning *)"
            " insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, died_at)"
            " select schedule_id, scheduled_at, tenant, 's', target_id, 'null', 'attempts', attempt, finished_at from died"
        )

    return die


def test_a_replay_at_a_rate_spreads_the_starts_and_meets_no_letter_twice(
    client: Client, sql: psycopg.Connection[Any], dead: UUID
) -> None:
    assert client.dead.count(bound=LETTERS + 1, labels={}) == LETTERS
    would = client.dead.replay(all=True, dry_run=True, rate_per_s=100)
    assert (would.replayed, would.left, count(sql, "dead_letters")) == (LETTERS, 0, LETTERS)
    done = client.dead.replay(tenant="default", rate_per_s=100, progress=die_again(sql))
    assert (done.replayed, done.left) == (LETTERS, 0)
    assert count(sql, "dead_letters") == LETTERS // STRETCH
    shortest, longest = sql.execute(GAPS.encode()).fetchone() or (0, 0)
    assert shortest >= 0.01 - 1e-5, "no two start closer together than the rate says, not where two steps meet either"
    assert longest < 5, "nor is there a hole: a step goes on where the one before ended"
    ahead = sql.execute(
        "select extract(epoch from max(wake_at) - bucketd.bucketd_now())::float8, extract(epoch from %s - max(wake_at))::float8"
        " from bucketd.runs",
        (done.next_at,),
    ).fetchone()
    assert ahead
    assert 170 < ahead[0] <= 200
    assert 0 < ahead[1] < 0.02


class Cut(Exception):
    """Somebody has lost patience."""


def cut_at(letters: int) -> Callable[[int], None]:
    def progress(done: int) -> None:
        if done >= letters:
            raise Cut

    return progress


def test_what_was_cut_short_goes_on_with_the_rest(client: Client, sql: psycopg.Connection[Any], dead: UUID) -> None:
    with pytest.raises(Cut):
        client.dead.replay(all=True, progress=cut_at(2 * STRETCH))
    replayed = (
        "select count(*) from bucketd.runs where status = 'deferred' and reason = 'replayed' and wake_at is not null"
    )
    assert sql.execute(replayed.encode()).fetchone() == (2 * STRETCH,)
    assert count(sql, "dead_letters") == LETTERS - 2 * STRETCH
    with pytest.raises(Cut):
        client.dead.discard(all=True, progress=cut_at(STRETCH))
    assert count(sql, "dead_letters") == LETTERS - 3 * STRETCH
    assert client.dead.replay(all=True).replayed == LETTERS - 3 * STRETCH
    assert count(sql, "dead_letters") == 0
    assert client.dead.discard(all=True) == 0
    noted = sql.execute(
        "select action, count(*)::int from bucketd.audit where kind = 'run' group by 1 order by 1"
    ).fetchall()
    assert noted == [("discard", 1), ("replay", 3)]
