"""Matching wall-clock minutes, as seconds since 1970-01-01 00:00 of the wall clock; no zone, no offset."""

from bisect import bisect_left
from functools import lru_cache

from bucketd.timing.days import Calendar, DayRule, calendar_of
from bucketd.timing.exclusions import Excluding

DAY_S = 86_400


class Walls:
    """The wall-clock minutes of one cron rule, in the years 1 to 9999."""

    __slots__ = ("_matching", "calendar", "times")

    def __init__(self, calendar: Calendar | Excluding, times: tuple[int, ...]) -> None:
        self.calendar = calendar
        self.times = times  # seconds of the day, ascending, never empty
        self._matching = calendar.next(0)  # a day that matches: most searches stay in the day of the one before

    def next(self, wall_s: int) -> int | None:
        """The first match >= `wall_s`, or None if the calendar ends before one."""
        day, second = divmod(wall_s, DAY_S)
        times = self.times
        match = day if day == self._matching else self.calendar.next(day)
        if match == day:
            self._matching = day
            at = bisect_left(times, second)
            if at < len(times):
                return wall_s - second + times[at]
            match = self.calendar.next(day + 1)
        return None if match is None else match * DAY_S + times[0]

    def previous(self, wall_s: int) -> int | None:
        """The last match < `wall_s`, or None if there is none back to year 1."""
        day, second = divmod(wall_s, DAY_S)
        match = self.calendar.previous(day)
        if match == day:
            at = bisect_left(self.times, second)
            if at:
                return wall_s - second + self.times[at - 1]
            match = self.calendar.previous(day - 1)
        return None if match is None else match * DAY_S + self.times[-1]

    def between(self, start_s: int, end_s: int) -> list[int]:
        """All matches with start_s <= wall < end_s, ascending."""
        times = self.times
        found: list[int] = []
        day = self.calendar.next(start_s // DAY_S)
        while day is not None and (midnight := day * DAY_S) < end_s:
            first = bisect_left(times, start_s - midnight) if start_s > midnight else 0
            last = bisect_left(times, end_s - midnight) if end_s < midnight + DAY_S else len(times)
            found += [midnight + second for second in times[first:last]]
            day = self.calendar.next(day + 1)
        return found


@lru_cache(maxsize=8_192)
def walls_of(days: DayRule, hour: tuple[int, ...], minute: tuple[int, ...], exclude: tuple[int, ...] = ()) -> Walls:
    """The shared walls of these sorted sets; `exclude`: day numbers without any match."""
    calendar = calendar_of(days)
    return Walls(Excluding(calendar, exclude) if exclude else calendar, _times_of(hour, minute))


@lru_cache(maxsize=8_192)
def _times_of(hour: tuple[int, ...], minute: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(h * 3_600 + m * 60 for h in hour for m in minute)
