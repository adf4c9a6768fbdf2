"""Dates without an occurrence: a schedule's own ones and those of its holiday calendars, as day numbers (1970-01-01 is 0).

A date is one of the wall clock. For a cron it is the date of the wall time that matches (so a wall time that does not exist on an
excluded date is not made up for either), for an interval the date that the wall clock of its zone shows at the instant.
"""

from bucketd.timing.days import Calendar
from bucketd.timing.offsets import DAY_S, ZoneOffsets


class Excluding:
    """A calendar without some of its dates."""

    __slots__ = ("_calendar", "_excluded")

    def __init__(self, calendar: Calendar, exclude: tuple[int, ...]) -> None:
        self._calendar = calendar
        self._excluded = frozenset(exclude)

    def next(self, day: int) -> int | None:
        """The first matching day >= `day`. Ends: each turn passes an excluded day, and those are finite."""
        found = self._calendar.next(day)
        while found in self._excluded:
            found = self._calendar.next(found + 1)
        return found

    def previous(self, day: int) -> int | None:
        """The last matching day <= `day`."""
        found = self._calendar.previous(day)
        while found in self._excluded:
            found = self._calendar.previous(found - 1)
        return found


class ExcludedTime:
    """The stretches of real time that the excluded dates of a zone cover."""

    __slots__ = ("_excluded", "_offsets")

    def __init__(self, offsets: ZoneOffsets, exclude: tuple[int, ...]) -> None:
        self._offsets = offsets
        self._excluded = frozenset(exclude)

    def holds(self, at_s: int) -> bool:
        """Whether the instant lies on an excluded date."""
        return (at_s + self._offsets.at(at_s).offset_s) // DAY_S in self._excluded

    def later(self, at_s: int) -> int:
        """An instant after `at_s`, which is excluded, with nothing but excluded time between: ask `holds` again there."""
        stretch = self._offsets.at(at_s)
        day, last_day = ((one + stretch.offset_s) // DAY_S for one in (at_s, stretch.hi_s))
        # Not beyond the stretch: whoever asks comes back for the next one, and years of dates would be walked each time.
        while day in self._excluded and day <= last_day:
            day += 1
        return min(day * DAY_S - stretch.offset_s, stretch.hi_s)  # a change of offset may show an earlier date again

    def earlier(self, at_s: int) -> int:
        """The same backwards: an instant before `at_s`."""
        stretch = self._offsets.at(at_s)
        day, first_day = ((one + stretch.offset_s) // DAY_S for one in (at_s, stretch.lo_s))
        while day in self._excluded and day >= first_day:
            day -= 1
        return max((day + 1) * DAY_S - 1 - stretch.offset_s, stretch.lo_s - 1)
