"""schedules.put: idempotent by (tenant, name), inside the caller's transaction if asked, and right when two write at once."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from bucketd import Client, ScheduleInput, at, cron, every
from bucketd.client.timings import Cron, Every, Timing, own_phase
from bucketd.errors import Conflict, InvalidInput, NotFound
from tests.client.conftest import count

SOON = datetime.now(UTC) + timedelta(days=1)


def test_a_put_creates_then_changes_then_does_nothing(client: Client) -> None:
    first = client.schedules.put("report", cron("0 9 * * *", tz="Europe/Berlin"), target="hook", payload={"a": 1})
    assert (first.created, first.changed, first.revision) == (True, True, 1)
    second = client.schedules.put("report", cron("0 9 * * *", tz="Europe/Berlin"), target="hook", payload={"a": 2})
    assert (second.created, second.changed, second.revision, second.id) == (False, True, 2, first.id)
    third = client.schedules.put("report", cron("0 9 * * *", tz="Europe/Berlin"), target="hook", payload={"a": 2})
    assert (third.created, third.changed, third.revision) == (False, False, 2)


def test_a_put_that_changes_nothing_writes_nothing(client: Client, sql: psycopg.Connection[Any]) -> None:
    def row() -> object:
        return sql.execute("select xmin, xmax, ctid, revision from bucketd.schedules").fetchone()

    def put() -> None:
        client.schedules.put(
            "a", every("15m"), target="hook", payload=[1], labels={"x": "y"}, jitter_s=7, timeout_s=9, ends_at=SOON
        )

    put()
    before = row()
    put()
    assert row() == before
    assert count(sql, "schedule_versions") == 0


FIELDS: dict[str, Any] = {
    "payload": {"b": 1}, "labels": {"b": "c"}, "timeout_s": 3, "max_attempts": 7, "retry_base_s": 0.1, "retry_cap_s": 0.0,
    "overlap": "allow", "misfire": "skip", "misfire_threshold_s": 61, "deadline_s": 9, "jitter_s": 3, "starts_at": SOON,
    "ends_at": SOON + timedelta(days=1), "paused": True, "target": "other",
}  # fmt: skip


def test_each_field_counts_as_a_change_and_is_read_back(client: Client) -> None:
    client.targets.put("other", "https://example.com")
    for field, value in FIELDS.items():
        plain = client.schedules.put(field, every("15m"), target="hook")
        assert getattr(plain, field) != value, field
        change = {"target": "hook", field: value}
        assert client.schedules.put(field, every("15m"), **change).changed, field
        assert getattr(client.schedules.get(field), field) == value, field
        assert not client.schedules.put(field, every("15m"), **change).changed, field


def test_a_field_that_is_left_out_has_its_default_again(client: Client) -> None:
    kept = {"paused"}  # said in the docstring
    plain = client.schedules.put("a", every("15m"), target="hook")
    client.targets.put("other", "https://example.com")
    client.schedules.put("a", every("15m"), **FIELDS)
    again = client.schedules.put("a", every("15m"), target="hook")
    assert {f: getattr(again, f) for f in FIELDS if f not in kept} == {
        f: getattr(plain, f) for f in FIELDS if f not in kept
    }


def test_a_one_shot_allows_overlap_and_others_skip_unless_told(client: Client) -> None:
    timings: list[Timing] = [cron("0 9 * * *"), every("15m"), at(SOON)]
    assert [client.schedules.put("a", timing, target="hook").overlap for timing in timings] == ["skip", "skip", "allow"]
    assert client.schedules.put("a", at(SOON), target="hook", overlap="skip").overlap == "skip"
    assert client.schedules.put("a", at(SOON), target="hook").overlap == "allow"
    client.schedules.put_many([ScheduleInput(name=t.__class__.__name__, timing=t, target="hook") for t in timings])
    assert {s.name: s.overlap for s in client.schedules.list() if s.name != "a"} == {
        "Cron": "skip",
        "Every": "skip",
        "At": "allow",
    }


@pytest.mark.parametrize(
    "timing", [cron("H H(2-5) * * 1-5", tz="Asia/Tokyo", fold="second"), every("90s"), every(60, phase=7), at(SOON)]
)
def test_a_timing_read_back_and_put_again_changes_nothing(client: Client, timing: Any) -> None:
    client.schedules.put("a", timing, target="hook")
    again = client.schedules.get("a").timing
    assert not client.schedules.put("a", again, target="hook").changed
    assert not client.schedules.put("a", timing, target="hook").changed
    assert isinstance(again, type(timing))
    if isinstance(timing, Cron) and isinstance(again, Cron):
        assert again.expression == timing.expression


def test_an_interval_gets_a_phase_of_its_own_and_keeps_the_one_it_has(client: Client) -> None:
    made = client.schedules.put("a", every("1h"), target="hook")
    assert isinstance(made.timing, Every)
    assert made.timing.phase == own_phase(made.id, 3600)
    client.schedules.put("a", every("1h", phase=11), target="hook")
    kept = client.schedules.put("a", every("1h"), target="hook")
    assert isinstance(kept.timing, Every)
    assert kept.timing.phase == 11
    other = client.schedules.put("a", every("2h"), target="hook")
    assert isinstance(other.timing, Every)
    assert other.timing.phase == own_phase(made.id, 7200)


def test_h_is_drawn_from_the_schedule_and_does_not_move_with_edits(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    for i in range(20):
        client.schedules.put(f"s{i}", cron("H * * * *"), target="hook")
    assert count(sql, "specs") > 5
    before = client.schedules.next("s0", 1)
    client.schedules.put("s0", cron("H * * * *"), target="hook", payload=1)
    assert client.schedules.next("s0", 1) == before


def test_paused_none_leaves_a_schedule_as_it_is(client: Client) -> None:
    client.schedules.put("a", every("15m"), target="hook", paused=True)
    assert client.schedules.put("a", every("20m"), target="hook").paused
    assert not client.schedules.put("a", every("20m"), target="hook", paused=False).paused


def _plain(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn)


def _odd(dsn: str) -> psycopg.Connection[Any]:
    connection: psycopg.Connection[Any] = psycopg.connect(dsn, row_factory=dict_row)
    connection.cursor_factory = psycopg.RawCursor
    connection.execute("set search_path = pg_catalog")
    connection.execute("set timezone = 'Asia/Tokyo'")
    return connection


@pytest.mark.parametrize("connect", [_plain, _odd])
def test_in_the_callers_transaction_a_rollback_leaves_nothing(
    client: Client, dsn: str, sql: psycopg.Connection[Any], connect: Callable[[str], psycopg.Connection[Any]]
) -> None:
    with connect(dsn) as connection:
        made = client.schedules.put("a", every("15m"), target="hook", connection=connection)
        assert made.created_at.utcoffset() == timedelta(0)
        assert client.on(connection).schedules.get("a").id == made.id
        with pytest.raises(NotFound):
            client.schedules.get("a")
        client.on(connection).schedules.trigger("a")
        connection.rollback()
    assert (count(sql, "schedules"), count(sql, "runs")) == (0, 0)


def test_in_the_callers_transaction_only_the_caller_commits(client: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as connection, client.on(connection) as bound:
        bound.schedules.put("a", every("15m"), target="hook")
        assert not connection.closed
        connection.commit()
    assert client.schedules.get("a").name == "a"


def test_an_autocommit_connection_gets_each_call_whole(client: Client, sql: psycopg.Connection[Any]) -> None:
    bound = client.on(sql)
    bound.schedules.put("a", every("15m"), target="hook")
    assert client.schedules.get("a").name == "a"
    with sql.transaction(force_rollback=True):
        bound.schedules.delete("a")
    assert client.schedules.get("a").name == "a"


def test_a_failed_transaction_says_so(client: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select from nowhere")
        with pytest.raises(Conflict, match="roll it back"):
            client.schedules.put("a", every("15m"), target="hook", connection=connection)
        connection.rollback()


def test_a_connection_of_another_kind_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInput, match=r"expected a psycopg\.Connection"):
        client.on(object())  # type: ignore[arg-type]


def test_writers_of_one_name_at_once_make_one_schedule(client: Client, dsn: str, sql: psycopg.Connection[Any]) -> None:
    """The loser of the race must take the winner's id, and draw H from that."""
    made: list[tuple[bool, object]] = []
    start = threading.Barrier(4)

    def put() -> None:
        with Client(dsn) as own:
            for i in range(15):
                start.wait()
                schedule = own.schedules.put(f"s{i}", cron("H H * * *"), target="hook")
                made.append((schedule.created, schedule.id))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 60
    assert sum(created for created, _ in made) == 15 == len({id for _, id in made})
    assert sql.execute("select distinct revision from bucketd.schedules").fetchall() == [
        (1,)
    ]  # no loser wrote over the winner
    for schedule in client.schedules.list():
        assert not client.schedules.put(schedule.name, cron("H H * * *"), target="hook").changed


def test_a_one_shot_of_the_past_is_refused_unless_it_stands_there_already(
    client: Client, sql: psycopg.Connection[Any]
) -> None:
    gone = at(datetime.now(UTC) - timedelta(minutes=1))
    with pytest.raises(InvalidInput, match="would never fire"):
        client.schedules.put("a", gone, target="hook")
    client.schedules.put("a", at(SOON), target="hook")
    sql.execute("update bucketd.cluster set clock_offset = interval '2 days'")
    assert not client.schedules.put("a", at(SOON), target="hook").changed
    with pytest.raises(InvalidInput, match="would never fire"):
        client.schedules.put("a", at(SOON + timedelta(hours=1)), target="hook")


def test_an_instant_is_rounded_up_so_that_it_never_fires_early(client: Client) -> None:
    moment = SOON.replace(microsecond=1)
    assert client.schedules.put("a", at(moment), target="hook").timing == at(
        moment.replace(microsecond=0) + timedelta(seconds=1)
    )
