"""The worked examples of the time rules, and one test per unusual zone, against the brute-force walk."""

from datetime import UTC, datetime, timedelta

import pytest

from bucketd.timing import fires_between, next_fire, parse_cron, previous_fire
from bucketd.timing.offsets import offsets_of
from bucketd.timing.spec import Spec
from tests.support.walk import walk_cron

WORKED = [
    ("30 2 * * *", "America/New_York", "2026-03-07T20:00Z", "auto", ["03-08T07:00", "03-09T06:30"]),
    ("30 2 * * *", "America/New_York", "2026-03-07T20:00Z", "shift", ["03-08T07:30", "03-09T06:30"]),
    ("30 2 * * *", "America/New_York", "2026-03-07T20:00Z", "skip", ["03-09T06:30", "03-10T06:30"]),
    ("15 * * * *", "America/New_York", "2026-03-08T05:30Z", "auto", ["03-08T06:15", "03-08T07:15", "03-08T08:15"]),
    ("30 1 * * *", "America/New_York", "2026-11-01T00:00Z", "auto", ["11-01T05:30", "11-02T06:30"]),
    ("30 1 * * *", "America/New_York", "2026-11-01T06:15Z", "auto", ["11-02T06:30"]),
    (
        "*/30 * * * *",
        "America/New_York",
        "2026-11-01T05:15Z",
        "auto",
        ["11-01T05:30", "11-01T06:00", "11-01T06:30", "11-01T07:00"],
    ),
    ("10 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "auto", ["10-03T15:30", "10-04T15:10"]),
    ("0 0 * * *", "Africa/Cairo", "2026-04-23T00:00Z", "auto", ["04-23T22:00", "04-24T21:00"]),
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00Z", "auto", ["12-29T22:00", "12-30T22:00"]),
    ("0 9 * * *", "America/Vancouver", "2026-11-02T00:00Z", "auto", ["11-02T16:00"]),
    # Section 5, both days.
    ("*/15 2 * * *", "America/New_York", "2026-03-08T05:00Z", "auto", ["03-08T07:00", "03-09T06:00"]),
    ("30 */2 * * *", "America/New_York", "2026-03-08T05:31Z", "auto", ["03-08T07:00", "03-08T08:30"]),
    ("30 0-23 * * *", "America/New_York", "2026-03-08T05:31Z", "auto", ["03-08T06:30", "03-08T07:30"]),
    ("30 0-23 * * *", "America/New_York", "2026-11-01T05:00Z", "auto", ["11-01T05:30", "11-01T06:30", "11-01T07:30"]),
    # The date test applies to the missing wall time.
    ("0 0 * * 0", "America/Santiago", "2026-09-05T00:00Z", "auto", ["09-06T04:00", "09-13T03:00"]),
    ("30 23 * * *", "Asia/Dhaka", "2009-06-19T00:00Z", "auto", ["06-19T17:00", "06-20T16:30"]),
]

# Each with the instants of its changes; the window around them is walked.
UNUSUAL = [
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Pacific/Chatham", "2026-09-26T14:00Z"),
    ("Pacific/Chatham", "2026-04-04T14:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00Z"),
    ("Antarctica/Casey", "2020-10-03T16:01Z"),
    ("Antarctica/Casey", "2020-03-07T16:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00Z"),
    ("America/Santiago", "2026-09-06T04:00Z"),
    ("America/Asuncion", "2024-10-06T04:00Z"),
    ("Atlantic/Azores", "2026-03-29T01:00Z"),
    ("America/Havana", "2025-11-02T05:00Z"),
    ("America/St_Johns", "2010-11-07T02:31Z"),
    ("America/Toronto", "1919-03-31T04:30Z"),
    ("Asia/Dhaka", "2009-06-19T17:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00Z"),
    ("America/Nuuk", "2024-03-31T01:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"),
    ("Africa/Casablanca", "2026-09-20T01:00Z"),
    ("Africa/El_Aaiun", "2026-03-22T02:00Z"),
    ("Europe/Dublin", "2026-03-29T01:00Z"),
    ("Europe/Dublin", "2026-10-25T01:00Z"),
    ("Africa/Windhoek", "2017-04-02T00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Pacific/Fakaofo", "2011-12-30T11:00Z"),
    ("Pacific/Kiritimati", "1994-12-31T10:00Z"),
    ("Pacific/Kanton", "1994-12-31T11:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
    ("Pacific/Kwajalein", "1969-09-30T13:00Z"),
    ("America/Caracas", "2016-05-01T07:00Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00Z"),
    ("Europe/Istanbul", "2016-03-27T01:00Z"),
    ("Europe/Volgograd", "2018-10-27T23:00Z"),
    ("Africa/Juba", "2021-01-31T21:00Z"),
    ("Asia/Tehran", "2022-03-21T20:30Z"),
    ("Asia/Almaty", "2024-02-29T18:00Z"),
    ("America/Vancouver", "2026-03-08T10:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"),
]
EXPRESSIONS = [
    "*/10 * * * *",
    "5 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "*/20 0-3,22,23 * * *",
    "10,50 */2 * * *",
    "0 12 30,31 * *",
    "30 23 * * FRI,SUN",
]
POLICIES = [("auto", "auto"), ("run_after", "first"), ("skip", "second"), ("shift", "both"), ("shift", "first")]


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def shown(fire_s: int) -> str:
    return datetime.fromtimestamp(fire_s, UTC).strftime("%m-%dT%H:%M")


@pytest.mark.parametrize(("expr", "tz", "after", "gap", "expected"), WORKED)
def test_worked_example(expr: str, tz: str, after: str, gap: str, expected: list[str]) -> None:
    spec, _ = parse_cron(expr, tz, gap=gap)
    fires, at_s = [], epoch(after)
    for _ in expected:
        at_s = next_fire(spec, at_s) or 0
        fires.append(at_s)
    assert [shown(fire) for fire in fires] == expected
    assert fires_between(spec, epoch(after) + 1, fires[-1] + 1) == fires
    back = [fires[-1]]
    for _ in expected[1:]:
        back.append(previous_fire(spec, back[-1]) or 0)
    assert back[::-1] == fires


@pytest.mark.parametrize(("tz", "change"), UNUSUAL)
def test_unusual_zone_agrees_with_the_walk(tz: str, change: str) -> None:
    at = datetime.fromisoformat(change)
    days = 1 if tz == "Africa/Monrovia" else 2  # walked by the second: its offset has seconds
    start, end = at - timedelta(days=days), at + timedelta(days=days)
    for expr in EXPRESSIONS:
        for gap, fold in POLICIES:
            spec, _ = parse_cron(expr, tz, gap=gap, fold=fold)
            expected = [int(fire.timestamp()) for fire in walk_cron(expr, tz, start, end, gap, fold)]
            start_s, end_s = int(start.timestamp()), int(end.timestamp())
            assert fires_between(spec, start_s, end_s) == expected, (expr, gap, fold)
            assert forwards(spec, start_s, end_s) == expected, (expr, gap, fold)
            assert backwards(spec, start_s, end_s) == expected, (expr, gap, fold)


def test_change_is_where_the_table_says() -> None:
    """The table above would prove nothing if an instant in it were wrong."""
    for tz, change in UNUSUAL:
        stretch = offsets_of(tz).at(epoch(change))
        assert stretch.lo_s == epoch(change), (tz, change, shown(stretch.lo_s), shown(stretch.hi_s))
        assert stretch.before_s != stretch.offset_s, tz


def test_never_made_up_for_a_missing_date() -> None:
    spec, _ = parse_cron("0 12 30 12 *", "Pacific/Apia")
    assert next_fire(spec, epoch("2011-12-01T00:00Z")) == epoch("2012-12-29T22:00Z")


def forwards(spec: Spec, start_s: int, end_s: int) -> list[int]:
    found: list[int] = []
    at_s = next_fire(spec, start_s - 1)
    while at_s is not None and at_s < end_s:
        found.append(at_s)
        at_s = next_fire(spec, at_s)
    return found


def backwards(spec: Spec, start_s: int, end_s: int) -> list[int]:
    found: list[int] = []
    at_s = previous_fire(spec, end_s)
    while at_s is not None and at_s >= start_s:
        found.append(at_s)
        at_s = previous_fire(spec, at_s)
    return found[::-1]
