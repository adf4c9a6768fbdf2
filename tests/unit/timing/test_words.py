"""The words of expressions: examples, and that whatever fires differently is told differently."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.timing import AtSpec, CronError, CronSpec, EverySpec, parse_cron
from bucketd.timing.days import DayRule, calendar_of
from bucketd.timing.words import policy_words, words
from tests.unit.timing.strategies import expressions

SAID = [
    ("* * * * *", "Every minute"),
    ("*/15 * * * *", "Every 15 minutes"),
    ("*/15 9-17 * * MON-FRI", "Every 15 minutes from 09:00 to 17:59, Monday to Friday"),
    ("* 1,9 * * *", "Every minute of the hours 01 and 09, every day"),
    ("@daily", "At 00:00, every day"),
    ("@hourly", "At minute 0 of every hour"),
    (
        "0,30 9,17 * MAR MON-FRI",
        "At 09:00, 09:30, 17:00 and 17:30, Monday to Friday, in March",
    ),
    ("*/7 * * * *", "At every 7th minute from 0 to 56 of every hour"),
    ("30 */2 * * *", "At minute 30 of every 2nd hour from 00 to 22, every day"),
    ("*/10 22-3 * * *", "Every 10 minutes from 22:00 to 03:59, every day"),
    ("0 0 * NOV-FEB FRI-MON", "At 00:00, Friday to Monday, in November to February"),
    ("0 0 * * SAT,7", "At 00:00, on Saturday and Sunday"),
    ("15 3 1-7 * MON", "At 03:15, on days 1 to 7 of the month or on Monday (either day field is enough)"),
    (
        "0 0 */2 * MON",
        "At 00:00, on every 2nd day from 1 to 31 of the month if that is also Monday (both day fields must match)",
    ),
    (
        "0 0 1-31 * 1",
        "At 00:00, on days 1 to 31 of the month or on Monday (either day field is enough, so every day)",
    ),
    ("0 0 L,L-3 * *", "At 00:00, on the last day and the day 3 before the last one of the month"),
    (
        "0 0 1,15W,LW * *",
        "At 00:00, on day 1, the working day (Monday to Friday) nearest to day 15"
        " and the last working day (Monday to Friday) of the month",
    ),
    ("0 0 ? * FRI#3,5L", "At 00:00, on the 3rd Friday of the month and the last Friday of the month"),
]
YEARS = range(730, 730 + 28 * 366)  # days from 1972-01-01 on: 28 years hold the 14 kinds of year


@pytest.mark.parametrize(("expr", "said"), SAID)
def test_said(expr: str, said: str) -> None:
    assert words(parse_cron(expr)[0]) == said


def test_h_is_said_as_drawn() -> None:
    spec, _ = parse_cron("H H * * *", seed="a")
    assert words(spec) == f"At {spec.hour[0]:02}:{spec.minute[0]:02}, every day"


def test_other_kinds() -> None:
    assert words(EverySpec(5_400)) == "Every 1 hour 30 minutes of elapsed time, counted from 1970-01-01 00:00 UTC"
    assert words(EverySpec(90), 5).endswith("UTC plus 5 seconds")
    assert words(AtSpec(), 1_700_000_000) == "Once, at 2023-11-14 22:13:20 UTC"


def test_policies_are_told_apart() -> None:
    said = {
        policy_words(parse_cron("0 2 * * *", gap=gap, fold=fold)[0])
        for gap in ("run_after", "skip", "shift")
        for fold in ("first", "second", "both")
    }
    assert len(said) == 9


@settings(max_examples=60, deadline=None)
@given(st.lists(expressions, min_size=2, max_size=12))
def test_what_fires_differently_is_told_differently(exprs: list[str]) -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for expr in exprs:
        spec = accepted(expr)
        if spec is not None:
            fires = fires_of(spec)
            assert seen.setdefault(words(spec), fires) == fires, expr


def test_sets_that_differ_in_one_place_are_told_apart() -> None:
    """Neighbours of one another, which random expressions seldom are."""
    said: dict[str, tuple[object, ...]] = {}
    values = ["*", "0", "1", "0-1", "0-2", "0,2", "*/2", "1-23/2", "22-1", "23-2", "0-22", "1-23", "0,4,8,12", "0,4,8"]
    days = ["*", "1", "1-2", "*/2", "L", "L-1", "1W", "LW", "1,L", "1-31", "1-30"]
    weekdays = ["*", "0", "1-5", "5-1", "0-6", "0-5", "*/2", "1#1", "1L", "1,1L"]
    for expr in (
        *(f"{minute} {hour} * * *" for minute in values for hour in values),
        *(f"0 0 {dom} * {dow}" for dom in days for dow in weekdays),
        *(f"0 0 * {month} *" for month in ("1", "1-2", "1-3", "12-2", "11-1", "1-11", "2-12", "*/2", "*")),
    ):
        spec, _ = parse_cron(expr)
        fires = fires_of(spec)
        assert said.setdefault(words(spec), fires) == fires, expr
    assert len(said) > 250


def accepted(expr: str) -> CronSpec | None:
    try:
        return parse_cron(expr)[0]
    except CronError as error:
        if error.code != "never_fires":
            raise
        return None


def fires_of(spec: CronSpec) -> tuple[object, ...]:
    """What matters: times of a day, and which days match."""
    return spec.minute, spec.hour, matching_days(spec.days)


@lru_cache(maxsize=4_096)
def matching_days(rule: DayRule) -> tuple[int, ...]:
    calendar, found = calendar_of(rule), []
    day = calendar.next(YEARS.start)
    while day is not None and day in YEARS:
        found.append(day)
        day = calendar.next(day + 1)
    return tuple(found)
