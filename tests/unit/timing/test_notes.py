"""Notes on missing and repeated wall times in a listing."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings

from bucketd.timing import CronError, EverySpec, fires_between, parse_cron, zone
from bucketd.timing.notes import annotated
from tests.unit.timing.strategies import changes, expressions, policies

NEW_YORK, CAIRO, DHAKA, APIA = "America/New_York", "Africa/Cairo", "Asia/Dhaka", "Pacific/Apia"
SPRING, AUTUMN = "2026-03-07T12:00Z", "2026-10-31T12:00Z"


def listed(expr: str, tz: str, after: str, n: int, gap: str = "auto", fold: str = "auto") -> list[str]:
    """`03-08T07:00 note` a line; a line that does not fire begins with a dash."""
    after_s = int(datetime.fromisoformat(after).timestamp())
    spec, _ = parse_cron(expr, tz, gap=gap, fold=fold)
    lines = annotated(spec, after_s, fires_between(spec, after_s + 1, after_s + 10**8, limit=n))
    shown = []
    for line in lines:
        at = datetime.fromtimestamp(line.at_s, UTC).strftime("%m-%dT%H:%M")
        shown.append(f"{'' if line.fires else '-'}{at} {line.note}".rstrip())
    return shown


@pytest.mark.parametrize(
    ("expr", "tz", "after", "gap", "fold", "expected"),
    [
        ("30 2 * * *", NEW_YORK, SPRING, "auto", "auto",
         ["03-08T07:00 02:30 does not exist on 2026-03-08, runs at 03:00", "03-09T06:30"]),
        ("30 2 * * *", NEW_YORK, SPRING, "skip", "auto",
         ["-03-08T07:00 skipped: 02:30 does not exist on 2026-03-08", "03-09T06:30", "03-10T06:30"]),
        ("30 2 * * *", NEW_YORK, SPRING, "shift", "auto",
         ["03-08T07:30 02:30 does not exist on 2026-03-08, runs at 03:30", "03-09T06:30"]),
        ("*/20 2 * * *", NEW_YORK, SPRING, "auto", "auto",
         ["03-08T07:00 02:00, 02:20 and 02:40 do not exist on 2026-03-08, run once at 03:00", "03-09T06:00"]),
        ("* 2,3 * * *", NEW_YORK, SPRING, "auto", "auto",
         ["03-08T07:00 60 times from 02:00 to 02:59 do not exist on 2026-03-08, run once at 03:00", "03-08T07:01"]),
        ("0 * * * *", NEW_YORK, "2026-03-08T05:30Z", "auto", "auto",
         ["03-08T06:00", "-03-08T07:00 skipped: 02:00 does not exist on 2026-03-08", "03-08T07:00"]),
        ("30 1 * * *", NEW_YORK, AUTUMN, "auto", "auto",
         ["11-01T05:30 01:30 occurs twice on 2026-11-01, runs at the first", "11-02T06:30"]),
        ("0 1,2 * * *", NEW_YORK, AUTUMN, "auto", "auto",
         ["11-01T05:00 01:00 occurs twice on 2026-11-01, runs at the first", "11-01T07:00"]),
        ("30 1 * * *", NEW_YORK, AUTUMN, "auto", "second",
         ["11-01T06:30 01:30 occurs twice on 2026-11-01, runs at the second", "11-02T06:30"]),
        ("30 1 * * *", NEW_YORK, AUTUMN, "auto", "both",
         ["11-01T05:30 01:30 occurs twice on 2026-11-01, this is the first",
          "11-01T06:30 01:30 occurs twice on 2026-11-01, this is the second"]),
        ("0 0 * * *", CAIRO, "2026-04-23T00:00Z", "auto", "auto",
         ["04-23T22:00 00:00 does not exist on 2026-04-24, runs at 01:00", "04-24T21:00"]),
        ("30 23 * * *", DHAKA, "2009-06-19T00:00Z", "auto", "auto",
         ["06-19T17:00 23:30 does not exist on 2009-06-19, runs at 00:00 on 2009-06-20", "06-20T16:30"]),
        # A jump of a day is no daylight saving: nothing is made up, though a regular slot falls on its landing.
        ("0 0 * * *", APIA, "2011-12-29T12:00Z", "auto", "auto",
         ["-12-30T10:00 skipped: 00:00 does not exist on 2011-12-30", "12-30T10:00", "12-31T10:00"]),
    ],
)  # fmt: skip
def test_noted(expr: str, tz: str, after: str, gap: str, fold: str, expected: list[str]) -> None:
    assert listed(expr, tz, after, 2, gap, fold) == expected


def test_nothing_beyond_the_listing() -> None:
    """The jump lies after the only fire that is shown, or before the instant that was asked for."""
    assert listed("30 2 * * *", NEW_YORK, "2026-03-06T12:00Z", 1, "skip") == ["03-07T07:30"]
    assert listed("30 2 * * *", NEW_YORK, "2026-03-08T12:00Z", 1, "skip") == ["03-09T06:30"]


def test_centuries_of_a_rare_date_are_cheap() -> None:
    spec, _ = parse_cron("30 2 29 2 *", NEW_YORK)
    fires = fires_between(spec, 0, 10**11, limit=300)
    assert [line.note for line in annotated(spec, 0, fires)] == [""] * 300


def test_intervals_have_no_notes() -> None:
    assert [line.note for line in annotated(EverySpec(3_600), 0, [3_600, 7_200])] == ["", ""]


@settings(max_examples=80, deadline=None)
@given(expressions, changes, policies)
def test_every_fire_is_listed_once_and_notes_are_true(
    expr: str, change: tuple[str, int], policy: tuple[str, str]
) -> None:
    tz, at_s = change
    try:
        spec, _ = parse_cron(expr, tz, gap=policy[0], fold=policy[1])
    except CronError:
        return
    fires = fires_between(spec, at_s - 36_000, at_s + 36_000)
    lines = annotated(spec, at_s - 36_001, fires)
    assert [line.at_s for line in lines if line.fires] == fires
    for line in lines:
        stretch = spec.offsets.at(line.at_s)
        assert line.fires or (spec.gap != "shift" and stretch.lo_s == line.at_s and stretch.before_s < stretch.offset_s)
        if line.fires and not line.note:
            wall_s = line.at_s + stretch.offset_s
            assert spec.walls.next(wall_s) == wall_s, "a fire that is no matching wall time is explained"
        if line.fires:
            assert ("occurs twice" in line.note) == is_ambiguous(line.at_s + stretch.offset_s, tz)


def is_ambiguous(wall_s: int, tz: str) -> bool:
    """PEP 495's word on a wall time."""
    wall = (datetime(1970, 1, 1) + timedelta(seconds=wall_s)).replace(tzinfo=zone(tz))
    first, second = wall.utcoffset(), wall.replace(fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return first > second
