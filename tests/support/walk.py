"""A second opinion on when things fire: brute force over minutes, slow and plain, sharing no code with the engine.

It walks UTC, asks zoneinfo what the wall clock shows, and tests the five fields against that. Zones come from the
tzdata package. H is not supported: draw it first.
"""

import calendar
import importlib.resources
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
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
_AROUND = timedelta(hours=26)  # the longest jump known is 24 h


def walk_cron(
    expr: str, tz: str, start: datetime, end: datetime, gap: str = "auto", fold: str = "auto"
) -> list[datetime]:
    """Fires with start <= t < end (aware datetimes), ascending, in UTC."""
    matches, every_hour = matcher(expr)
    gap = ("skip" if every_hour else "run_after") if gap == "auto" else gap
    fold = ("both" if every_hour else "first") if fold == "auto" else fold
    fires: set[datetime] = set()
    shown, jumps = _clock(tz, start.astimezone(UTC), end.astimezone(UTC))
    for wall, instants in shown.items():
        if matches(wall):
            fires.update({"first": instants[:1], "second": instants[-1:], "both": instants}[fold])
    for instant, wall_before, wall_after in jumps:
        if gap == "run_after" and wall_after - wall_before <= timedelta(hours=3):
            if any(matches(wall) for wall in _minutes(wall_before, wall_after)):
                fires.add(instant)
        elif gap == "shift":
            missing = (wall for wall in _minutes(wall_before, wall_after) if matches(wall))
            fires.update(instant + (wall - wall_before) for wall in missing)
    return sorted(fire for fire in fires if start <= fire < end)


def walk_every(every_s: int, phase: int, start: datetime, end: datetime) -> list[datetime]:
    """Instants k * every_s + phase since the epoch with start <= t < end, in UTC."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    step = timedelta(seconds=every_s)
    at = epoch + timedelta(seconds=phase)
    at += ((start - at) // step) * step
    found = []
    while at < end:
        if at >= start:
            found.append(at)
        at += step
    return found


@lru_cache(maxsize=16)
def _clock(
    tz: str, start: datetime, end: datetime
) -> tuple[dict[datetime, list[datetime]], list[tuple[datetime, datetime, datetime]]]:
    """What the wall clock shows around the window: whole wall minutes with their instants; and each jump forward as
    (instant, wall time that would have come, wall time that came)."""
    info = _zone(tz)
    first, last = start.replace(second=0, microsecond=0) - _AROUND, end + _AROUND
    whole = all(at.astimezone(info).second == 0 for at in (first, last))
    step = timedelta(minutes=1) if whole else timedelta(seconds=1)
    shown: dict[datetime, list[datetime]] = defaultdict(list)
    jumps = []
    at, expected = first, None
    while at <= last:
        wall = at.astimezone(info).replace(tzinfo=None, fold=0)
        if expected is not None and wall > expected:
            jumps.append((at, expected, wall))
        if wall.second == 0:
            shown[wall].append(at)
        expected = wall + step
        at += step
    return shown, jumps


def _minutes(start: datetime, end: datetime) -> Iterable[datetime]:
    wall = start if start.second == 0 else start.replace(second=0) + timedelta(minutes=1)
    while wall < end:
        yield wall
        wall += timedelta(minutes=1)


@cache
def _zone(name: str) -> ZoneInfo:
    with importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def matcher(expr: str) -> tuple[Predicate, bool]:
    """(does a wall minute match, does every hour match)."""
    text = expr.strip().upper()
    minute, hour, dom, month, dow = _MACROS.get(text.lower(), text).split()
    minutes = _numbers(minute, 0, 59, 59)
    hours = _numbers(hour, 0, 23, 23)
    months = _numbers(month, 1, 12, 12, _MONTHS, 1)
    by_date, by_weekday = _dates(dom), _weekdays(dow)
    both = dom[0] in "*?" or dow[0] in "*?"

    @cache
    def is_day(day: date) -> bool:
        found = (by_date(day), by_weekday(day))
        return day.month in months and (all(found) if both else any(found))

    def matches(wall: datetime) -> bool:
        return wall.minute in minutes and wall.hour in hours and is_day(wall.date())

    return matches, len(hours) == 24


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
