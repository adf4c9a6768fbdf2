"""Models of cronie, Kubernetes and EventBridge: what they accept, what it means to them, and what the clocks do to it.

Sunday is 0 or 7 in cronie, 0 in Kubernetes and 1 in EventBridge; only the meaning is compared, so for EventBridge an
expression is translated and refused only if no translation exists.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bucketd.timing.days import DayRule, calendar_of
from bucketd.timing.fields import DOW, FIELDS, Field, Item
from bucketd.timing.peers.reading import Model, Question, Reading, Refused, Silent
from bucketd.timing.spec import CronSpec


def cronie(question: Question) -> Reading:
    """cronie's crond. Source: its `src/entry.c` (grammar, star flags) and `src/cron.c` (find_jobs), and cron(8).

    A job is a wildcard job if its minute or its hour field begins with a star: skipped in a gap, run in both passes of a
    fold. Any other is a fixed job: every missed minute is started right after the jump, one by one, and a fold counts once.
    A range that descends is accepted and empty.
    """
    _check(question, hash_=True, question_mark=True, special=True, open_step=True)
    sets = _sets(question, _ascending_or_empty)
    if not all(sets[number] for number in (0, 1, 3)):
        return Silent()
    both = any(text.startswith("*") for text in (question.fields[2], question.fields[4]))
    star = any(text.startswith("*") for text in question.fields[:2])
    spec = _spec(question, sets, both, "skip" if star else "run_after", "both" if star else "first")
    return Model(spec, each_missed=not star) if not calendar_of(spec.days).is_empty() else Silent()


def kubernetes(question: Question) -> Reading:
    """Kubernetes CronJobs, and whatever else parses with robfig/cron v3 (ParseStandard).

    Source: its `parser.go` (ranges, star bit) and `spec_test.go` (changes of the clocks). Missing times are skipped, repeated
    ones run twice, whatever the expression. `*/n` loses the star bit, so with another day field either is enough.
    """
    _check(question, hash_=True, special=True)
    for number, item in question.plain():
        bounds = (item.first, item.second) if item.form in ("value", "range") else ()
        if FIELDS[number] is DOW and 7 in bounds:
            raise Refused(f"{item.token.upper()}: Sunday is 0 only")
        if item.form == "range" and (item.first or 0) > (item.second or 0):
            raise Refused(f"{item.token.upper()}: the beginning of a range is beyond its end")
    stars = [any(item.form == "all" and item.step in (None, 1) for item in question.items[field]) for field in (2, 4)]
    return Model(_spec(question, _sets(question, _ascending_or_empty), any(stars), "skip", "both"))


def eventbridge(question: Question) -> Reading:
    """Amazon EventBridge Scheduler, cron expressions. Source: its user guide ("Schedule types", "Time zones and DST").

    One of the day fields must be ?, L and W stand alone in theirs, # in its. Lists, ranges, steps, macros and H are
    translated to the numbers they mean. Missing times are skipped, repeated ones run once.
    """
    days = question.spec.days
    any_date, any_weekday = len(days.dom) == 31, len(days.dow) == 7
    if not (any_date or any_weekday):
        raise Refused("no translation: one of the day fields must be ? there")
    if days.both and not any_date:
        _check_dates(days)
    elif days.both and not any_weekday and len(days.dow_nth) + len(days.dow_last) + bool(days.dow) > 1:
        raise Refused("no translation: # and L of a weekday stand alone there")
    return Model(replace(question.spec, gap="skip", fold="first"))


def _check_dates(days: DayRule) -> None:
    if days.dom_last_working or any(days.dom_last):
        raise Refused("no translation: LW and L-n are unknown there")
    if len(days.dom_last) + len(days.dom_near) + bool(days.dom) > 1:
        raise Refused("no translation: L and W stand alone there")


def _check(
    question: Question,
    *,
    hash_: bool = False,
    question_mark: bool = False,
    special: bool = False,
    open_step: bool = False,
) -> None:
    """Refuses items of the forms that are named."""
    if question.is_macro and question.expr.strip(" \t") != question.expr.strip(" \t").lower():
        raise Refused(f"{question.expr.strip()}: macros are lower case only")
    for _, item in question.plain():
        token = item.token.upper()
        if hash_ and item.form == "hash":
            raise Refused(f"{token}: H is unknown there")
        if question_mark and item.token == "?":
            raise Refused("?: unknown there")
        if special and item.form in ("last", "near", "last_working", "nth", "last_of"):
            raise Refused(f"{token}: L, W and # are unknown there")
        if open_step and item.form == "value" and item.step is not None:
            raise Refused(f"{token}: a step needs a range or a star")


def _sets(question: Question, values: Callable[[Field, Item], Sequence[int]]) -> list[tuple[int, ...]]:
    found = []
    for field, items in zip(FIELDS, question.items, strict=True):
        numbers = {number for item in items for number in values(field, item)}
        found.append(tuple(sorted({number % 7 for number in numbers} if field is DOW else numbers)))
    return found


def _ascending_or_empty(field: Field, item: Item) -> Sequence[int]:
    if item.form == "all":
        return range(field.lo, field.top + 1, item.step or 1)
    first = item.first or 0
    last = item.second if item.second is not None else first if item.step is None else field.top
    return range(first, last + 1, item.step or 1)


def _spec(question: Question, sets: Sequence[tuple[int, ...]], both: bool, gap: str, fold: str) -> CronSpec:
    minute, hour, dom, month, dow = sets
    return CronSpec(minute, hour, DayRule(month, dom, dow, both), question.spec.tz, gap, fold)
