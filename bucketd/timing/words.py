"""A spec in plain English, told from its expanded sets: what is said is what fires, however the expression was spelt.

Rules that fire differently have different words (a test looks). Ranges that wrap stay ranges: `22 to 02`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from bucketd.timing.days import DayRule
from bucketd.timing.spec import AtSpec, CronSpec, EverySpec, Spec

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_EPOCH = datetime(1970, 1, 1)
# So many times of the day are listed; more are told by their hours and minutes.
_LISTED_TIMES = 6
# Evenly spaced numbers are listed up to here, and told by their step from here on.
_STEPPED = 4


def words(spec: Spec, phase: int = 0) -> str:
    """`At 09:00 and 17:30, Monday to Friday, in March`; `phase` is that of the schedule, as in `next_fire`."""
    match spec:
        case EverySpec():
            offset = f" plus {length(phase)}" if phase else ""
            text = f"Every {length(spec.every_s)} of elapsed time, counted from 1970-01-01 00:00 UTC{offset}"
            return ", ".join(part for part in (text, _excluded(spec.exclude)) if part)
        case AtSpec():
            return f"Once, at {(_EPOCH + timedelta(seconds=phase)).isoformat(' ')} UTC"
        case CronSpec():
            excluded = _excluded(spec.exclude)
            parts = (_times(spec.minute, spec.hour), _days(spec), _months(spec.days.month), excluded)
            return ", ".join(part for part in parts if part)


def policy_words(spec: CronSpec) -> str:
    """What missing and repeated wall times do, in one sentence."""
    gap = {
        "run_after": "runs right after the jump (if that is at most 3 hours)",
        "skip": "is skipped",
        "shift": "runs as late after the jump as it would have been due",
    }[spec.gap]
    fold = {"first": "runs at the first", "second": "runs at the second", "both": "runs at both"}[spec.fold]
    return f"A time that the clocks leave out {gap}; a time that they show twice {fold}."


def length(seconds: int) -> str:
    """`1 hour 30 minutes`: exact, the largest units first."""
    parts = []
    for unit, unit_s in _UNITS:
        count, seconds = divmod(seconds, unit_s)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts) or "0 seconds"


def joined(parts: Sequence[str], word: str = "and") -> str:
    """`a, b and c`."""
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _times(minute: tuple[int, ...], hour: tuple[int, ...]) -> str:
    if len(minute) * len(hour) <= _LISTED_TIMES:
        return "At " + joined([f"{h:02}:{m:02}" for h in hour for m in minute])
    step = 60 // len(minute)
    if minute == tuple(range(0, 60, step)) and len(minute) * step == 60 and len(minute) > 1:
        return ("Every minute" if step == 1 else f"Every {step} minutes") + _span(hour)
    if len(minute) == 1:
        return f"At minute {minute[0]} of {_hours(hour)}"
    return f"At {_listed(minute, 60, str, 'minutes ', 'minute ')} of {_hours(hour)}"


def _span(hour: tuple[int, ...]) -> str:
    if len(hour) == 24:
        return ""
    runs = _runs(hour, 24)
    if len(runs) == 1:
        return f" from {runs[0][0]:02}:00 to {runs[0][1]:02}:59"
    return f" of {_hours(hour)}"


def _hours(hour: tuple[int, ...]) -> str:
    return "every hour" if len(hour) == 24 else _listed(hour, 24, "{:02}".format, "the hours ", "hour ")


def _days(spec: CronSpec) -> str:
    days = spec.days
    any_date, any_weekday = len(days.dom) == 31, len(days.dow) == 7
    if days.both and any_date and any_weekday:
        return "every day" if len(spec.hour) < 24 else ""
    if days.both and any_date:
        listed = _weekdays(days)
        one_range = len(listed) == 1 and " to " in listed[0]
        return joined(listed) if one_range else f"on {joined(listed)}"
    if days.both and any_weekday:
        return f"on {joined(_dates(days))} of the month"
    dates, weekdays = joined(_dates(days)), joined(_weekdays(days), "or")
    if days.both:
        return f"on {dates} of the month if that is also {weekdays} (both day fields must match)"
    always = ", so every day" if any_date or any_weekday else ""
    return f"on {dates} of the month or on {weekdays} (either day field is enough{always})"


def _dates(days: DayRule) -> list[str]:
    parts = [_listed(days.dom, 0, str, "days ", "day ")] if days.dom else []
    for back in days.dom_last:
        parts.append(f"the day {back} before the last one" if back else "the last day")
    parts += [f"the working day (Monday to Friday) nearest to day {day}" for day in days.dom_near]
    return parts + (["the last working day (Monday to Friday)"] if days.dom_last_working else [])


def _weekdays(days: DayRule) -> list[str]:
    # Weeks are read from Monday on; Sunday is the seventh day here.
    plain = tuple(sorted(weekday or 7 for weekday in days.dow))
    parts = _spelt(plain, 7, lambda weekday: _WEEKDAYS[weekday % 7], first=1)
    parts += [f"the {ordinal(k)} {_WEEKDAYS[weekday]} of the month" for weekday, k in days.dow_nth]
    return parts + [f"the last {_WEEKDAYS[weekday]} of the month" for weekday in days.dow_last]


def _months(month: tuple[int, ...]) -> str:
    if len(month) == 12:
        return ""
    return "in " + joined(_spelt(month, 12, lambda number: _MONTHS[number - 1], first=1))


def _excluded(days: tuple[int, ...]) -> str:
    return "except on " + joined([str((_EPOCH + timedelta(days=day)).date()) for day in days]) if days else ""


def _listed(values: tuple[int, ...], period: int, name: Callable[[int], str], many: str, one: str) -> str:
    """Numbers with their noun: `hour 09`, `the hours 09 to 17`, `every 2nd hour from 00 to 22`."""
    step = values[1] - values[0] if len(values) >= _STEPPED else 1
    if step > 1 and values == tuple(range(values[0], values[-1] + 1, step)):
        return f"every {ordinal(step)} {one}from {name(values[0])} to {name(values[-1])}"
    return (one if len(values) == 1 else many) + joined(_spelt(values, period, name))


def _spelt(values: tuple[int, ...], period: int, name: Callable[[int], str], first: int = 0) -> list[str]:
    parts = []
    for start, end in _runs(values, period, first):
        inside = (end - start) % period if period else end - start
        parts += [name(start)] if not inside else [name(start), name(end)] if inside == 1 else []
        parts += [f"{name(start)} to {name(end)}"] if inside > 1 else []
    return parts


def _runs(values: tuple[int, ...], period: int, first: int = 0) -> list[tuple[int, int]]:
    """Neighbours together; with a period (0: none) the last run goes on in the first one."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    if period and len(runs) > 1 and runs[0][0] == first and runs[-1][1] == first + period - 1:
        runs = [*runs[1:-1], (runs[-1][0], runs[0][1])]
    return runs


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
