"""Days of runs: no gap between the first and the last, none below the retention floor, made by many at once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.support.rows import Rows

DAY = timedelta(days=1)


def days(rows: Rows) -> list[datetime]:
    """First instants of the days that exist."""
    names = rows.sql(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'bucketd.runs'::regclass order by 1"
    )
    return [datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC) for (name,) in names]


def bounds(rows: Rows) -> tuple[datetime, datetime, datetime]:
    row = rows.sql("select retention_floor, days_from, days_through from bucketd.cluster")[0]
    return row[0], row[1], row[2]


def check(rows: Rows) -> None:
    """The table `cluster` promises a day for every instant in [days_from, days_through)."""
    floor, first, through = bounds(rows)
    found = days(rows)
    assert floor <= first
    assert [day for day in found if first <= day < through] == [first + n * DAY for n in range((through - first).days)]


def make(rows: Rows, first: datetime, through: datetime) -> int:
    return int(rows.one("select bucketd.make_days(%s, %s)", first, through))


def test_a_fresh_schema_has_yesterday_and_a_week_ahead(rows: Rows) -> None:
    check(rows)
    today = datetime.fromtimestamp(rows.now(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    assert days(rows) == [today + n * DAY for n in range(-1, 8)]


def test_days_that_exist_are_not_made_again(rows: Rows) -> None:
    _, first, through = bounds(rows)
    assert make(rows, first, through) == 0
    assert make(rows, first, through + timedelta(seconds=1)) == 1
    check(rows)
    assert bounds(rows)[2] == through + DAY


def test_a_day_of_the_past_leaves_no_hole_before_today(rows: Rows) -> None:
    _, first, _ = bounds(rows)
    make(rows, first - 9 * DAY, first - 8 * DAY)
    assert bounds(rows)[1] == first - 9 * DAY
    check(rows)


def test_a_cluster_that_was_off_for_weeks_leaves_no_hole_behind(rows: Rows) -> None:
    """What fell due in the hole is settled when the nodes come back: its row must have a day."""
    _, _, through = bounds(rows)
    make(rows, through + 5 * DAY, through + 14 * DAY)
    assert bounds(rows)[2] == through + 14 * DAY
    check(rows)


def test_never_below_the_retention_floor(rows: Rows) -> None:
    floor, _, _ = bounds(rows)
    make(rows, floor - 10 * DAY, floor + DAY)
    assert days(rows)[0] == bounds(rows)[1] == floor
    assert make(rows, floor - 10 * DAY, floor - 5 * DAY) == 0
    check(rows)
    with pytest.raises(psycopg.errors.CheckViolation):
        rows.sql("update bucketd.cluster set days_from = retention_floor - interval '1 day'")


def test_below_the_floor_nothing_is_made_even_from_the_middle_of_a_day(rows: Rows) -> None:
    rows.sql("update bucketd.cluster set retention_floor = days_through, days_from = days_through")
    _, _, through = bounds(rows)
    before = days(rows)
    assert make(rows, through - 4 * DAY, through - DAY) == 0
    assert days(rows) == before
    assert bounds(rows)[1:] == (through, through)


def test_a_run_finds_its_day_whatever_the_zone_of_the_session(rows: Rows) -> None:
    _, first, _ = bounds(rows)
    rows.sql("set timezone = 'Pacific/Kiritimati'")
    make(rows, first - 3 * DAY, first)
    check(rows)
    late = first - 3 * DAY + timedelta(hours=23, minutes=59)
    rows.sql(
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, finished_at)"
        " values (%s, gen_random_uuid(), 1, 'skipped', 'settle', 'default', now())",
        late,
    )
    assert rows.one("select relname from bucketd.runs r join pg_class c on c.oid = r.tableoid") == f"runs_{late:%Y%m%d}"


def test_many_at_once(rows: Rows, dsn: str) -> None:
    _, first, through = bounds(rows)

    def make_apart(_: int) -> int:
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute("select bucketd.make_days(%s, %s)", (first, through + 3 * DAY)).fetchone()
            assert row is not None
            return int(row[0])

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(make_apart, range(6))) == 3
    check(rows)


def test_there_is_no_day_for_what_lies_outside(rows: Rows) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        rows.sql(
            "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, finished_at)"
            " values ('2020-01-01', gen_random_uuid(), 1, 'skipped', 'settle', 'default', now())"
        )
