"""A second opinion on when things fire: brute force over minutes, slow and plain, sharing no code with the engine.

It walks UTC, asks zoneinfo what the wall clock shows, and tests the five fields against that. Zones come from the
tzdata package. H is not supported: draw it first.
"""

from __future__ import annotations

import calendar
import importlib.resources
import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

Predicate = Callable[[datetime], bool]

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_DAY = 1_440  # minutes
_AROUND_S = 26 * 3_600  # the longest jump known is 24 h
_LONGEST_MADE_UP_S = 3 * 3_600
_UNSEEN = -(2**62)  # in place of an instant: the clock never showed this wall minute


def walk_cron(
    expr: str, tz: str, start: datetime, end: datetime, gap: str = "auto", fold: str = "auto"
) -> list[datetime]:
    """Fires with start <= t < end (aware datetimes), ascending, in UTC."""
    start_s, end_s = math.ceil(start.timestamp()), math.ceil(end.timestamp())
    return [datetime.fromtimestamp(fire, UTC) for fire in walk_seconds(expr, tz, start_s, end_s, gap, fold)]


def walk_seconds(expr: str, tz: str, start_s: int, end_s: int, gap: str = "auto", fold: str = "auto") -> list[int]:
    """`walk_cron` in epoch seconds: made for whole years, which share one walk a zone."""
    fields = _fields(expr)
    gap = ("skip" if fields.every_hour else "run_after") if gap == "auto" else gap
    fold = ("both" if fields.every_hour else "first") if fold == "auto" else fold
    clock = _walk(tz, start_s, end_s)
    walls = _walls(fields, clock.first_day, len(clock.first) // _DAY)
    fires: set[int] = set()
    for seen in {"first": [clock.first], "second": [clock.last], "both": [clock.first, clock.last]}[fold]:
        fires.update([seen[wall] for wall in walls])
    for instant, due_s, shown_s in clock.jumps:
        missing = [wall_s for wall_s in range(-(-due_s // 60) * 60, shown_s, 60) if fields.match(wall_s)]
        if gap == "run_after" and missing and shown_s - due_s <= _LONGEST_MADE_UP_S:
            fires.add(instant)
        elif gap == "shift":
            fires.update(instant + wall_s - due_s for wall_s in missing)
    found = sorted(fires)
    return found[bisect_left(found, start_s) : bisect_left(found, end_s)]


def walk_every(every_s: int, phase: int, start: datetime, end: datetime) -> list[datetime]:
    """Instants k * every_s + phase since the epoch with start <= t < end, in UTC."""
    start_s, end_s = math.ceil(start.timestamp()), math.ceil(end.timestamp())
    return [datetime.fromtimestamp(at_s, UTC) for at_s in walk_every_seconds(every_s, phase, start_s, end_s)]


def walk_every_seconds(every_s: int, phase: int, start_s: int, end_s: int) -> list[int]:
    """`walk_every` in epoch seconds."""
    at_s, found = phase + (start_s - phase) // every_s * every_s, []
    while at_s < end_s:
        if at_s >= start_s:
            found.append(at_s)
        at_s += every_s
    return found


def duration_s(text: str) -> int:
    """Seconds of `24h`, `30m`, `4h30m`: as files of jobs write intervals."""
    return sum(int(count) * {"h": 3_600, "m": 60, "s": 1}[unit] for count, unit in re.findall(r"(\d+)([hms])", text))


@dataclass(frozen=True)
class _Clock:
    """What the wall clock shows around a window.

    For each wall minute from the midnight that begins `first_day` (a date's ordinal): the first and the last instant
    that show it. And each jump forward: its instant, the wall time that was to come, and the one that came (seconds).
    """

    first_day: int
    first: array[int]
    last: array[int]
    jumps: list[tuple[int, int, int]]


@lru_cache(maxsize=8)
def _walk(tz: str, start_s: int, end_s: int) -> _Clock:
    info = _zone(tz)
    from_s, until_s = start_s // 60 * 60 - _AROUND_S, end_s + _AROUND_S
    # Offsets may have seconds: then smaller steps, so that whole minutes of the wall clock are met all the same.
    step_s = math.gcd(60, *(_wall_s(_shown(info, at_s)) - at_s for at_s in (from_s, until_s)))
    first_day = _shown(info, from_s).toordinal()
    days = _shown(info, until_s).toordinal() - first_day + 1
    first = array("q", [_UNSEEN]) * (days * _DAY)
    last, jumps = first[:], []
    utc, step = datetime.fromtimestamp(from_s, UTC).replace(tzinfo=info), timedelta(seconds=step_s)
    due = info.fromutc(utc)
    wall_s = _wall_s(due)
    for at_s in range(from_s, until_s + 1, step_s):
        wall = info.fromutc(utc)  # the fields of UTC in, those of the wall out
        if wall != due:
            due_s, wall_s = wall_s, _wall_s(wall)
            assert _wall_s(_shown(info, at_s - 1)) == due_s - 1, f"{tz} changed within a step, before {at_s}"
            if wall_s > due_s:
                jumps.append((at_s, due_s, wall_s))
        if wall_s % 60 == 0:
            place = wall_s // 60 - first_day * _DAY
            last[place] = at_s
            if first[place] == _UNSEEN:
                first[place] = at_s
        wall_s += step_s
        due, utc = wall + step, utc + step
    return _Clock(first_day, first, last, jumps)


def _shown(info: ZoneInfo, at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).astimezone(info)


def _wall_s(wall: datetime) -> int:
    return wall.toordinal() * 86_400 + wall.hour * 3_600 + wall.minute * 60 + wall.second


@cache
def _zone(name: str) -> ZoneInfo:
    with importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@dataclass(frozen=True, eq=False)
class _Fields:
    """The five fields: minutes of a day, ascending; which dates (ordinals); and whether every hour matches."""

    minutes: list[int]
    is_day: Callable[[int], bool]
    every_hour: bool

    def match(self, wall_s: int) -> bool:
        """Whether a whole minute of the wall clock matches."""
        day, second = divmod(wall_s, 86_400)
        return second // 60 in self.minutes and self.is_day(day)


def matcher(expr: str) -> tuple[Predicate, bool]:
    """(does a wall minute match, does every hour match)."""
    fields = _fields(expr)
    return lambda wall: fields.match(_wall_s(wall)), fields.every_hour


@lru_cache(maxsize=1_024)
def _fields(expr: str) -> _Fields:
    text = expr.strip().upper()
    minute, hour, dom, month, dow = _MACROS.get(text.lower(), text).split()
    minutes, hours = _numbers(minute, 0, 59, 59), _numbers(hour, 0, 23, 23)
    months = _numbers(month, 1, 12, 12, _MONTHS, 1)
    by_date, by_weekday = _dates(dom), _weekdays(dow)
    both = dom[0] in "*?" or dow[0] in "*?"

    @cache
    def is_day(ordinal: int) -> bool:
        day = date.fromordinal(ordinal)
        found = (by_date(day), by_weekday(day))
        return day.month in months and (all(found) if both else any(found))

    of_day = sorted(hour * 60 + minute for hour in hours for minute in minutes)
    return _Fields(of_day, is_day, len(hours) == 24)


@lru_cache(maxsize=4)  # one policy after the other asks for the same
def _walls(fields: _Fields, first_day: int, days: int) -> list[int]:
    """The minutes that match, of some days, counted from the first midnight."""
    matching = (day for day in range(days) if fields.is_day(first_day + day))
    return [day * _DAY + minute for day in matching for minute in fields.minutes]


def _numbers(text: str, low: int, high: int, top: int, names: list[str] | None = None, base: int = 0) -> set[int]:
    """Numbers of a list of plain items; items of another form add none."""

    def number(word: str) -> int:
        return int(word) if word.isdigit() else (names or []).index(word) + base

    found: set[int] = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        if body in ("*", "?"):
            sequence = list(range(low, top + 1))
        elif re.fullmatch(r"\w+-\w+", body) and not body.startswith("L-"):
            left, right = map(number, body.split("-"))
            if left > right and high == 7 and left == 7:
                left = 0
            sequence = [left]
            while sequence[-1] != right:
                sequence.append(low if sequence[-1] == top and right < left else sequence[-1] + 1)
        elif body.isdigit() or body in (names or []):
            sequence = [number(body)]
            if step:
                sequence = list(range(number(body) % 7 if high == 7 else number(body), top + 1))
        else:
            continue
        found.update(sequence[:: int(step or 1)])
    return found


def _dates(text: str) -> Callable[[date], bool]:
    plain = _numbers(text, 1, 31, 31)
    special = [item for item in text.split(",") if "L" in item or "W" in item]

    def matches(day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        if day.day in plain:
            return True
        for item in special:
            if item == "LW":
                target = _working(day.replace(day=length))
            elif item.endswith("W"):
                target = _working(day.replace(day=int(item[:-1]))) if int(item[:-1]) <= length else 0
            else:
                target = length - int(item[2:] or 0)
            if day.day == target:
                return True
        return False

    return matches


def _working(day: date) -> int:
    """The nearest Monday to Friday of the same month: tried at distance 0, 1, 2, the earlier day first."""
    for distance in (0, -1, 1, -2, 2):
        candidate = day + timedelta(days=distance)
        if candidate.month == day.month and candidate.isoweekday() <= 5:
            return candidate.day
    raise AssertionError("no month lacks a working day")


def _weekdays(text: str) -> Callable[[date], bool]:
    plain = {number % 7 for number in _numbers(text, 0, 7, 6, _WEEKDAYS)}
    special = [item for item in text.split(",") if "#" in item or re.fullmatch(r"(\d+|[A-Z]{3})L", item)]

    def matches(day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in plain:
            return True
        for item in special:
            name, _, nth = item.partition("#")
            name = name if nth else name[:-1]
            wanted = int(name) % 7 if name.isdigit() else _WEEKDAYS.index(name)
            if weekday != wanted:
                continue
            if nth and (day.day + 6) // 7 == int(nth):
                return True
            if not nth and (day + timedelta(days=7)).month != day.month:
                return True
        return False

    return matches
