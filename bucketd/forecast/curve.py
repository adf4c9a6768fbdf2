"""From counted groups to fires a minute, or a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from bucketd.forecast.timetable import HOUR, Pattern
from bucketd.store.forecast import Group


def units_of(group: Group, patterns: Sequence[Pattern], unit_s: int, units: int) -> Iterable[int]:
    """The units (60 or 1 s, counted from the window's start) in which each schedule of a group is due, one for each fire."""
    if group.pattern is not None:
        per_minute = 60 // unit_s
        found = [
            slot.minute * per_minute + group.a for slot in bounded(group, patterns[group.pattern], units // per_minute)
        ]
        return [unit for unit in found if 0 <= unit < units]
    if group.every_s is None:
        return (group.a,)
    grain_s = gcd(group.every_s, unit_s)
    first_s = group.a * grain_s
    return (at_s // unit_s for at_s in range(first_s, first_s + group.b * group.every_s, group.every_s))


def bounded(group: Group, pattern: Pattern, minutes: int) -> Pattern:
    """The slots that the group's bounds leave. A bound at the edge of what was asked is none."""
    lo, hi = group.b, group.c if group.c is not None else minutes
    if lo <= -HOUR and hi >= minutes:
        return pattern
    return tuple(s for s in pattern if (lo <= -HOUR or s.minute >= lo) and (hi >= minutes or s.minute < hi))


def curve(counts: Mapping[Group, int], patterns: Sequence[Pattern], unit_s: int, units: int) -> list[int]:
    """Fires in each unit of the window."""
    found = [0] * units
    for group, count in counts.items():
        for unit in units_of(group, patterns, unit_s, units):
            found[unit] += count
    return found


def minutes_of(seconds: Sequence[int]) -> list[int]:
    """Fires a minute from fires a second."""
    return [sum(seconds[at : at + 60]) for at in range(0, len(seconds), 60)]
