"""Which dates match, day by day over a calendar cycle of leap years, against the walk's own reading of the fields."""

from datetime import date, datetime, time

import pytest

from bucketd.timing import parse_cron
from bucketd.timing.days import calendar_of
from tests.support.walk import matcher

FIRST, LAST = date(1996, 1, 1), date(2024, 12, 31)
EPOCH = date(1970, 1, 1).toordinal()

EXPRESSIONS = [
    *(
        f"0 12 {dom} * *"
        for dom in ("L", "L-1", "L-27,L-28", "L-29", "L-30", "LW", "1W", "15W", "28W,29W", "30W", "31W")
    ),
    *(f"0 12 * * {dow}" for dow in ("1#1", "SUN#5", "6#5", "7#3,FRIL", "SATL", "0L", "FRI-MON", "7-2/2", "5-7")),
    *("0 12 29 2 *", "0 12 L 2 1", "0 12 13 * 5", "0 12 */2 * 1-5", "0 12 1W,L * 3#2", "0 12 ? 6 TUE"),
    *(
        "0 12 31,1 1,3,4,12 *",
        "0 12 1-31 2 0-6",
        "0 12 28-3 2,3 *",
        "0 12 * FEB MONL",
        "0 12 L-30 * 1",
        "0 12 L-29,31W * 5#5",
    ),
]


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_dates_agree_with_the_walk(expr: str) -> None:
    spec, _ = parse_cron(expr)
    matches, _ = matcher(expr)
    span = range(FIRST.toordinal(), LAST.toordinal() + 1)
    expected = [day - EPOCH for day in span if matches(datetime.combine(date.fromordinal(day), time(12)))]
    calendar = calendar_of(spec.days)
    assert expected
    forwards, day = [], calendar.next(FIRST.toordinal() - EPOCH)
    while day is not None and day <= LAST.toordinal() - EPOCH:
        forwards.append(day)
        day = calendar.next(day + 1)
    assert forwards == expected
    backwards, day = [], calendar.previous(LAST.toordinal() - EPOCH)
    while day is not None and day >= FIRST.toordinal() - EPOCH:
        backwards.append(day)
        day = calendar.previous(day - 1)
    assert backwards[::-1] == expected


@pytest.mark.parametrize(
    ("dom", "month", "year", "expected"),
    [
        ("1W", 8, 2026, 3),  # the 1st is a Saturday: not July
        ("1W", 2, 2026, 2),  # a Sunday
        ("31W", 5, 2026, 29),  # a Sunday: not June
        ("31W", 10, 2026, 30),  # a Saturday
        ("15W", 8, 2026, 14),
        ("LW", 5, 2026, 29),
        ("L-30", 1, 2026, 1),
    ],
)
def test_nearest_working_day_stays_in_its_month(dom: str, month: int, year: int, expected: int) -> None:
    spec, _ = parse_cron(f"0 0 {dom} {month} *")
    found = calendar_of(spec.days).next(date(year, 1, 1).toordinal() - EPOCH)
    assert found is not None
    assert date.fromordinal(found + EPOCH) == date(year, month, expected)
