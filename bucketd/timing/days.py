"""Which dates match: a rule over months, days of the month and weekdays, and its calendar.

A year's matching days depend only on the weekday of 1 January and on whether it is a leap year, so 14 lists serve all
years.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_YEAR, _LAST_YEAR = 1, 9_999
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SUNDAY, _SATURDAY = 0, 6


@dataclass(frozen=True, slots=True)
class DayRule:
    """Sorted sets. `dom` or `dow` may be empty if only the other items of that field are given. Sunday is 0.

    `both` is cronie's star rule resolved: True if both day fields must match, False if either is enough.
    """

    month: tuple[int, ...]
    dom: tuple[int, ...]
    dow: tuple[int, ...]
    both: bool
    dom_last: tuple[int, ...] = ()  # n days before the last of the month; 0 is L itself
    dom_near: tuple[int, ...] = ()  # nW: the working day nearest to day n
    dom_last_working: bool = False  # LW
    dow_nth: tuple[tuple[int, int], ...] = ()  # (weekday, k): the k-th of the month
    dow_last: tuple[int, ...] = ()  # the last such weekday of the month


class Calendar:
    """The matching dates of one rule, as day numbers (1970-01-01 is 0), within the years 1 to 9999."""

    __slots__ = ("_recent", "_years", "rule")

    def __init__(self, rule: DayRule) -> None:
        self.rule = rule
        self._years: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._recent: tuple[int, int, tuple[int, ...]] = (0, 0, ())

    def next(self, day: int) -> int | None:
        """The first matching day >= `day`; None if the calendar ends before one."""
        start, end, days = self._recent
        if not start <= day < end:
            if day > _LAST_DAY:
                return None
            start, end, days = self._enter(_year_of(max(day, _FIRST_DAY)))
        at = bisect_left(days, day - start)
        if at < len(days):
            return start + days[at]
        year = _year_of(start)
        for later in range(year + 1, min(year + 401, _LAST_YEAR + 1)):
            days = self._days(later)
            if days:
                return _start_of(later) + days[0]
        return None

    def previous(self, day: int) -> int | None:
        """The last matching day <= `day`; None if there is none back to year 1."""
        start, end, days = self._recent
        if not start <= day < end:
            if day < _FIRST_DAY:
                return None
            start, end, days = self._enter(_year_of(min(day, _LAST_DAY)))
        at = bisect_left(days, day - start + 1)
        if at:
            return start + days[at - 1]
        year = _year_of(start)
        for earlier in range(year - 1, max(year - 401, _FIRST_YEAR - 1), -1):
            days = self._days(earlier)
            if days:
                return _start_of(earlier) + days[-1]
        return None

    def is_empty(self) -> bool:
        """True if no date of a 400-year cycle matches; stops at the first year that has one."""
        return not any(self._of_type(weekday, leap) for leap in (False, True) for weekday in range(7))

    def _enter(self, year: int) -> tuple[int, int, tuple[int, ...]]:
        start = _start_of(year)
        self._recent = entered = (start, _start_of(year + 1), self._days(year))
        return entered

    def _days(self, year: int) -> tuple[int, ...]:
        return self._of_type(_weekday(_start_of(year)), _is_leap(year))

    def _of_type(self, first_weekday: int, leap: bool) -> tuple[int, ...]:
        days = self._years.get((first_weekday, leap))
        if days is None:
            days = self._years[first_weekday, leap] = tuple(_days_of_year(self.rule, first_weekday, leap))
        return days


@lru_cache(maxsize=8_192)
def calendar_of(rule: DayRule) -> Calendar:
    """The shared calendar of `rule`."""
    return Calendar(rule)


def _days_of_year(rule: DayRule, first_weekday: int, leap: bool) -> Iterator[int]:
    start = 0
    for month, length in enumerate(_LENGTHS, 1):
        if month == 2 and leap:
            length = 29
        if month in rule.month:
            for day in _days_of_month(rule, (first_weekday + start) % 7, length):
                yield start + day - 1
        start += length


def _days_of_month(rule: DayRule, first_weekday: int, length: int) -> list[int]:
    by_date = {day for day in rule.dom if day <= length}
    by_date.update(length - back for back in rule.dom_last if back < length)
    by_date.update(_nearest_working(day, first_weekday, length) for day in rule.dom_near if day <= length)
    if rule.dom_last_working:
        by_date.add(_nearest_working(length, first_weekday, length))
    by_weekday: set[int] = set()
    for weekday in rule.dow:
        by_weekday.update(range(_nth(weekday, 1, first_weekday), length + 1, 7))
    by_weekday.update(day for day in (_nth(*pair, first_weekday) for pair in rule.dow_nth) if day <= length)
    by_weekday.update(_last(weekday, first_weekday, length) for weekday in rule.dow_last)
    return sorted(by_date & by_weekday if rule.both else by_date | by_weekday)


def _nth(weekday: int, k: int, first_weekday: int) -> int:
    return 1 + (weekday - first_weekday) % 7 + 7 * (k - 1)


def _last(weekday: int, first_weekday: int, length: int) -> int:
    first = _nth(weekday, 1, first_weekday)
    return first + (length - first) // 7 * 7


def _nearest_working(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _start_of(year: int) -> int:
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400 + 1 - _EPOCH_ORDINAL


def _year_of(day: int) -> int:
    return date.fromordinal(day + _EPOCH_ORDINAL).year


def _weekday(day: int) -> int:
    return (day + 4) % 7  # 1970-01-01 was a Thursday


_FIRST_DAY = _start_of(_FIRST_YEAR)
_LAST_DAY = _start_of(_LAST_YEAR + 1) - 1
