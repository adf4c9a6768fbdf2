"""Dates without an occurrence: crons and intervals equal a walk that leaves those dates out, on every kind of clock change."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from time import thread_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketd.timing import (
    CronSpec,
    EverySpec,
    TimingError,
    count_between,
    fires_between,
    load_rule,
    next_fire,
    nth_fire,
    parse_cron,
    previous_fire,
)
from bucketd.timing.offsets import FIRST_S, LAST_S, ZoneOffsets
from bucketd.timing.zones import zone
from tests.support.walk import matcher, walk_every_seconds, walk_seconds
from tests.unit.timing.strategies import changes, expressions

DAY_S = 86_400
GAPS, FOLDS = ("run_after", "skip", "shift"), ("first", "second", "both")
# Instants at which the date itself is disturbed: midnight is missing, or comes twice, or a whole date is gone.
MIDNIGHTS = [
    ("America/Havana", "2025-11-02T05:00Z"),
    ("America/Havana", "2025-03-09T05:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00Z"),
    ("Asia/Dhaka", "2009-06-19T17:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("America/St_Johns", "2010-11-07T02:31Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
]
EXPRESSIONS = ["*/20 * * * *", "30 23 * * *", "0 0 * * *", "15,45 0-2 * * *", "*/7 22-1 * * *", "0 12 * * SAT,SUN"]


def day_number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def around(tz: str, at_s: int) -> list[date]:
    """The three dates that the wall clock may show within a day of an instant, and a fourth."""
    shown = datetime.fromtimestamp(at_s, UTC).astimezone(zone(tz)).date()
    return [shown + timedelta(days=n) for n in (-2, -1, 0, 1)]


def walked(expr: str, tz: str, start_s: int, end_s: int, gap: str, fold: str, excluded: Sequence[date]) -> list[int]:
    """The union of what the wall minutes of each single date that is left make: the engine is not asked."""
    minute, hour, *of_days = expr.split()
    is_date, _ = matcher(" ".join(["* *", *of_days]))
    first = datetime.fromtimestamp(start_s, UTC).date() - timedelta(days=3)
    fires: set[int] = set()
    for day in (first + timedelta(days=n) for n in range((end_s - start_s) // DAY_S + 7)):
        if day not in excluded and is_date(datetime.combine(day, time.min)):
            single = f"{minute} {hour} {day.day} {day.month} *"
            fires.update(walk_seconds(single, tz, start_s, end_s, gap, fold))
    return sorted(fires)


def excluding(expr: str, tz: str, excluded: Sequence[date], gap: str = "auto", fold: str = "auto") -> CronSpec:
    return replace(
        parse_cron(expr, tz, gap=gap, fold=fold)[0], exclude=tuple(sorted({day_number(day) for day in excluded}))
    )


def agree(spec: CronSpec | EverySpec, fires: list[int], start_s: int, end_s: int, phase: int = 0) -> None:
    """All questions about [start_s, end_s) have the answers that follow from this list."""
    assert fires_between(spec, start_s, end_s, phase) == fires
    assert count_between(spec, start_s, end_s, phase) == len(fires)
    for n, fire_s in enumerate(fires, 1):
        before = fires[n - 2] if n > 1 else None
        assert next_fire(spec, fire_s - 1, phase) == fire_s
        assert previous_fire(spec, fire_s + 1, phase) == fire_s
        if before is not None:
            assert next_fire(spec, before, phase) == fire_s
            assert previous_fire(spec, fire_s, phase) == before
    for n in {1, 2, len(fires) // 3, len(fires)} & set(range(1, len(fires) + 1)):
        assert nth_fire(spec, start_s - 1, n, phase) == fires[n - 1]
        assert fires_between(spec, start_s, end_s, phase, limit=n) == fires[:n]


@pytest.mark.parametrize(("tz", "change"), MIDNIGHTS)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("fold", FOLDS)
def test_a_cron_equals_the_walk_over_the_dates_that_are_left(tz: str, change: str, gap: str, fold: str) -> None:
    at_s = at(change)
    start_s, end_s = at_s - 2 * DAY_S, at_s + 2 * DAY_S
    *edges, last = around(tz, at_s)
    missing = 0
    for expr in EXPRESSIONS:
        whole = walked(expr, tz, start_s, end_s, gap, fold, [])
        for excluded in ([edges[0]], [edges[1]], [edges[2]], [edges[1], edges[2]], [*edges, last]):
            fires = walked(expr, tz, start_s, end_s, gap, fold, excluded)
            agree(excluding(expr, tz, excluded, gap, fold), fires, start_s, end_s)
            missing += len(whole) - len(fires)
    assert missing > 100, "excluded dates must take something away"


@pytest.mark.parametrize(("tz", "change"), MIDNIGHTS)
@pytest.mark.parametrize(("every_s", "phase"), [(3_600, 0), (1_800, 1_799), (7 * 3_600 + 1, 77)])
def test_an_interval_equals_the_walk_by_the_date_that_the_wall_clock_shows(
    tz: str, change: str, every_s: int, phase: int
) -> None:
    at_s = at(change)
    start_s, end_s = at_s - 3 * DAY_S, at_s + 3 * DAY_S
    info = zone(tz)
    whole = walk_every_seconds(every_s, phase, start_s, end_s)
    days = around(tz, at_s)
    for excluded in ([days[0]], [days[1]], [days[2]], [days[1], days[2]], days):
        fires = [one for one in whole if datetime.fromtimestamp(one, UTC).astimezone(info).date() not in excluded]
        assert len(fires) < len(whole) or excluded == [date(2011, 12, 30)]
        spec = EverySpec(every_s, tuple(map(day_number, excluded)), tz)
        agree(spec, fires, start_s, end_s, phase)


def test_midnight_that_comes_twice_belongs_to_its_date_both_times() -> None:
    """St John's went back from 00:01 to 23:01 of the day before: the 6th is shown twice, the 7th in between for a minute."""
    start_s, end_s = at("2010-11-07T01:00Z"), at("2010-11-07T05:00Z")
    without = EverySpec(60, (day_number(date(2010, 11, 6)),), "America/St_Johns")
    fires = fires_between(without, start_s, end_s)
    assert fires[0] == at("2010-11-07T02:30Z"), "the one minute of the 7th before the clocks go back"
    assert fires[1] == at("2010-11-07T03:30Z"), "and the 6th again after it"


def test_what_is_missing_on_an_excluded_date_is_not_made_up_on_the_next() -> None:
    """Dhaka's 23:30 of the 19th does not exist and would run at 00:00 of the 20th."""
    start_s, end_s = at("2009-06-18T18:00Z"), at("2009-06-20T00:00Z")
    spec = parse_cron("30 23 * * *", "Asia/Dhaka")[0]
    assert at("2009-06-19T17:00Z") in fires_between(spec, start_s, end_s)
    assert at("2009-06-19T17:00Z") not in fires_between(
        excluding("30 23 * * *", "Asia/Dhaka", [date(2009, 6, 19)]), start_s, end_s
    )
    assert at("2009-06-19T17:00Z") in fires_between(
        excluding("30 23 * * *", "Asia/Dhaka", [date(2009, 6, 20)]), start_s, end_s
    ), "the date of the wall time counts, not the one on which it lands"


offsets_in_days = st.lists(st.integers(-4, 4), max_size=6)


@settings(max_examples=100, deadline=None)
@given(expressions, changes, st.sampled_from(GAPS), st.sampled_from(FOLDS), offsets_in_days, st.integers(-DAY_S, DAY_S))
def test_random_crons_equal_the_walk(
    expr: str, change: tuple[str, int], gap: str, fold: str, around_days: list[int], shift_s: int
) -> None:
    tz, at_s = change
    start_s = at_s + shift_s - DAY_S
    middle = datetime.fromtimestamp(at_s, UTC).date()
    excluded = [middle + timedelta(days=n) for n in around_days]
    try:
        spec = excluding(expr, tz, excluded, gap, fold)
    except TimingError:
        return  # never_fires
    agree(spec, walked(expr, tz, start_s, start_s + 2 * DAY_S, gap, fold, excluded), start_s, start_s + 2 * DAY_S)


@settings(max_examples=100, deadline=None)
@given(changes, st.integers(1, 200_000), st.integers(0, 200_000), offsets_in_days, st.integers(-DAY_S, DAY_S))
def test_random_intervals_equal_the_walk(
    change: tuple[str, int], every_s: int, phase: int, around_days: list[int], shift_s: int
) -> None:
    tz, at_s = change
    every_s = max(every_s, 300)
    start_s, end_s = at_s + shift_s - 2 * DAY_S, at_s + shift_s + 2 * DAY_S
    middle = datetime.fromtimestamp(at_s, UTC).date()
    excluded = sorted({middle + timedelta(days=n) for n in around_days})
    spec = EverySpec(every_s, tuple(map(day_number, excluded)), tz)
    whole = walk_every_seconds(every_s, phase % every_s, start_s, end_s)
    fires = [one for one in whole if _shown(tz, one) not in excluded]
    agree(spec, fires, start_s, end_s, phase % every_s)


def test_a_change_of_offset_far_behind_the_excluded_dates_makes_no_difference() -> None:
    """Asked inside a disturbed hour, and beside it: the answer lies behind the same 200 years of excluded months."""
    months = [date(2026 + n // 12, n % 12 + 1, 1) for n in range(12 * 200)]
    spec = excluding("0 9 1 * *", "America/New_York", months)
    ordinary, disturbed = next_fire(spec, at("2026-10-31T12:00Z")), next_fire(spec, at("2026-11-01T06:30Z"))
    assert ordinary == at("2226-01-01T14:00Z")
    assert disturbed == ordinary
    assert (
        previous_fire(spec, at("2225-11-02T06:30Z"))
        == at("2025-12-01T14:00Z")
        == previous_fire(spec, at("2225-10-31T12:00Z"))
    )


def test_a_rule_without_any_date_left_ends() -> None:
    leap_days = [date(year, 2, 29) for year in range(4, 10_000, 4) if year % 4 == 0 and (year % 100 or not year % 400)]
    spec = excluding("0 0 29 2 *", "UTC", leap_days)
    assert next_fire(spec, FIRST_S) is None
    assert previous_fire(spec, LAST_S) is None
    assert fires_between(spec, FIRST_S, LAST_S + 1) == []
    assert nth_fire(spec, FIRST_S, 1) is None


@settings(max_examples=100, deadline=None)
@given(expressions, st.lists(st.dates(), max_size=20), st.sampled_from(["UTC", "Africa/Cairo", "Pacific/Apia"]))
@example("0 0 * * *", [date(1, 1, 1), date(9999, 12, 31)], "UTC")
def test_equal_sets_share_one_rule_which_reads_back(expr: str, days: list[date], tz: str) -> None:
    try:
        spec = excluding(expr, tz, days)
    except TimingError:
        return
    assert load_rule(spec.rule()) == spec == pickle.loads(pickle.dumps(spec))
    assert excluding(expr.replace(" ", "  "), tz, [*reversed(days), *days]).rule() == spec.rule()
    if days:
        assert excluding(expr, tz, days[1:]).rule() != spec.rule() or days[0] in days[1:]
    every = EverySpec(60, tuple(sorted({day_number(day) for day in days})), tz)
    assert load_rule(every.rule()) == every == pickle.loads(pickle.dumps(every))


def test_without_excluded_dates_the_rule_is_the_old_one() -> None:
    spec = parse_cron("0 9 * * *", "Europe/Berlin")[0]
    assert "exclude" not in spec.rule()
    assert replace(spec, exclude=()).rule() == spec.rule()
    assert EverySpec(60).rule() == '{"every_s":60,"kind":"every"}'


CRON = '"days":"both","dom":[1],"dow":[0],"fold":"first","gap":"skip","hour":[0],"kind":"cron","minute":[0],"month":[1],"tz":"UTC"}'
BAD: list[tuple[str, Any]] = [
    ("unsorted", "[2,1]"), ("twice", "[1,1]"), ("text", '["1"]'), ("fraction", "[1.0]"), ("truth", "[true]"),
    ("null", "null"), ("empty", "[]"), ("an object", "{}"), ("a text", '"1"'), ("before year 1", "[-719163]"),
    ("after year 9999", "[2932897]"), ("nested", "[[1]]"),
]  # fmt: skip


@pytest.mark.parametrize("value", [value for _, value in BAD], ids=[name for name, _ in BAD])
def test_a_stored_rule_with_other_exclusions_is_refused(value: str) -> None:
    good = '{"days":"both","dom":[1],"dow":[0],"exclude":[1,2],' + CRON.removeprefix(
        '"days":"both","dom":[1],"dow":[0],'
    )
    assert load_rule(good).rule() == good
    with pytest.raises(TimingError) as caught:
        load_rule(good.replace("[1,2]", value))
    assert caught.value.code == "bad_rule"
    with pytest.raises(TimingError):
        load_rule('{"every_s":60,"exclude":' + value + ',"kind":"every"}')


@pytest.mark.parametrize("tz", ['"Mars/Olympus"', '"UTC"', "null", "5", '["UTC"]', '"../UTC"'])
def test_an_interval_in_no_zone_is_refused(tz: str) -> None:
    """UTC goes without saying, so a rule that says it is another text of the same rule."""
    with pytest.raises(TimingError):
        load_rule('{"every_s":60,"exclude":[1],"kind":"every","tz":' + tz + "}")


def cold(spec: CronSpec | EverySpec) -> CronSpec | EverySpec:
    """With an empty table of its zone, as in a fresh process."""
    fresh = replace(spec)
    offsets = ZoneOffsets(zone(spec.tz))
    if isinstance(fresh, CronSpec):
        object.__setattr__(fresh, "offsets", offsets)
    elif fresh.excluded is not None:
        object.__setattr__(fresh.excluded, "_offsets", offsets)
    return fresh


@pytest.mark.alone
@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "America/Havana"])
@pytest.mark.parametrize("step", [1, 2])
def test_thousands_of_excluded_dates_in_the_way_are_passed_quickly(tz: str, step: int) -> None:
    """5,000 dates are 13 years; of every other day 27."""
    first = day_number(date(2026, 1, 1))
    exclude = tuple(range(first, first + 5_000 * step, step))
    begin_s, end_s = first * DAY_S - DAY_S, (first + 5_000 * step + 1) * DAY_S
    cron = replace(parse_cron("0 9 * * *" if step == 1 else "0 9 */2 * *", tz)[0], exclude=exclude)
    for spec in (cron, EverySpec(60, exclude, tz), EverySpec(DAY_S * step, exclude, tz)):
        for search, from_s in ((next_fire, begin_s + DAY_S), (previous_fire, end_s - DAY_S)):
            fresh = cold(spec)
            began = thread_time()
            found = search(fresh, from_s, 43_200 if isinstance(spec, EverySpec) else 0)
            taken = thread_time() - began
            assert found is not None
            assert taken < 0.05, (search.__name__, spec.kind, f"{taken * 1_000:.0f} ms")


def _shown(tz: str, at_s: int) -> date:
    info: ZoneInfo = zone(tz)
    return datetime.fromtimestamp(at_s, UTC).astimezone(info).date()
