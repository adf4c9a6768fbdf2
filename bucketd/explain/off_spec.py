"""Why an instant is no occurrence: not in the spec, an excluded date, a change of the clocks, or outside of the schedule's life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from bucketd.explain.answer import Finding, Verdict, shown
from bucketd.explain.question import Choice, local, minute_of, offsets
from bucketd.explain.timeline import Era, Timeline, expression_at, instant, retimed
from bucketd.store.evidence import Deed, Standing
from bucketd.timing import CronSpec, EverySpec
from bucketd.timing.notes import annotated, clock, day
from bucketd.timing.offsets import DAY_S

_EPOCH_DAY = date(1970, 1, 1)


def before_creation(schedule: Standing, deeds: Sequence[Deed], at: datetime) -> Finding | None:
    """The schedule did not exist then; an earlier one of the same name may have."""
    if at >= schedule.created_at:
        return None
    mine = [deed for deed in deeds if deed.action == "create" and deed.object_id == str(schedule.id)]
    text = f"It did not exist: it was created at {shown(schedule.created_at)}{by(mine)}."
    return Finding(Verdict.NOT_YET_CREATED, text, tuple(former(deeds, str(schedule.id))))


def deleted(deeds: Sequence[Deed], at: datetime) -> Finding:
    """There is no such schedule any more."""
    gone = [deed for deed in deeds if deed.action == "delete"]
    made = [deed for deed in deeds if deed.action == "create"]
    first, last = made[0] if made else None, gone[-1] if gone else None
    if first and at < first.at:
        facts = tuple(former(deeds, ""))
        return Finding(
            Verdict.NOT_YET_CREATED, f"It did not exist: it was created at {shown(first.at)}{by([first])}.", facts
        )
    if last is None:
        return Finding(Verdict.DELETED, "It does not exist any more; the audit log has forgotten who deleted it.")
    text = f"It was deleted at {shown(last.at)}{by([last])}."
    if at < last.at:
        text = f"{text[:-1]}; there is no run of {shown(at)}, and its timing is gone with it."
    return Finding(Verdict.DELETED, text, tuple(former(deeds, last.object_id)))


def outside(choice: Choice, schedule: Standing, timeline: Timeline, deeds: Sequence[Deed]) -> Finding:
    """An occurrence of a timing that did not hold for it."""
    slot, era = choice.slot, choice.era
    assert slot is not None
    assert era is not None
    held = timeline.holding(slot)
    if held is not None:
        text = f"At that time the schedule was {_timing(schedule, held, deeds, slot)}, and that does not fire then"
        change = None if held.until_at is None else retimed(schedule, deeds, held.until_at)
        facts = () if change is None else (f"changed to the next version at {shown(change.at)}{by([change])}",)
        return Finding(Verdict.OTHER_TIMING, f"{text}; version {era.version} does.", facts)
    if slot < era.from_at:
        start = f"starts_at is {shown(era.from_at)}" if era.is_current else f"it started at {shown(era.from_at)}"
        return Finding(Verdict.BEFORE_START, f"It lies before the schedule's start: {start}.")
    assert era.until_at is not None
    if era.is_current and schedule.max_runs is not None:
        text = f"The schedule had ended: max_runs = {schedule.max_runs} was used up at {shown(era.until_at)}."
    else:
        text = f"The schedule had ended: its end was {shown(era.until_at)}."
    return Finding(Verdict.AFTER_END, text)


def no_occurrence(
    at: datetime, era: Era, schedule: Standing, deeds: Sequence[Deed], excluded_by: Mapping[date, Sequence[str]]
) -> Finding:
    """An instant of whose minute the timing knows nothing, or nothing that it runs. `excluded_by`: calendars with these dates."""
    spec = era.spec
    if spec is None:
        return Finding(
            Verdict.QUARANTINED, f"The rule cannot be computed: {schedule.error or 'no node has tried yet'}."
        )
    found = _excluded(at, era, schedule, excluded_by) or _gap(at, era) or _fold(at, era)
    if found is not None:
        return found
    finding = not_in_spec(shown(at), at, era, schedule, deeds)
    return replace(finding, facts=(f"that is {local(at, era.tz)}",)) if era.tz != "UTC" else finding


def not_in_spec(what: str, at: datetime, era: Era, schedule: Standing, deeds: Sequence[Deed]) -> Finding:
    """Nothing but that the timing does not ask for it."""
    return Finding(Verdict.NOT_IN_SPEC, f"{what} is not in the spec {_timing(schedule, era, deeds, at)}.")


def earlier_timing(
    at: datetime, era: Era, schedule: Standing, timeline: Timeline, deeds: Sequence[Deed]
) -> tuple[str, ...]:
    """A word on the timing before, if that would have fired then: somebody may not know of the edit."""
    older = [one for one in timeline.eras if one.version < era.version]
    if not older or not older[-1].fires(minute_of(at), minute_of(at) + 60, 1, bounded=False):
        return ()
    return (f"it was an occurrence of the timing before: {_timing(schedule, older[-1], deeds, older[-1].from_at)}",)


def days_near(at: datetime, era: Era) -> list[date]:
    """The excluded dates that an occurrence of this instant may belong to."""
    if not isinstance(era.spec, CronSpec | EverySpec) or not era.spec.exclude:
        return []
    shown_day = (minute_of(at) + offsets(era).at(minute_of(at)).offset_s) // DAY_S
    near = (shown_day, shown_day - 1, shown_day + 1)  # a jump over midnight makes up a time of the other date
    return [_EPOCH_DAY + timedelta(days=number) for number in near if number in set(era.spec.exclude)]


def by(deeds: Sequence[Deed]) -> str:
    """` by ann`, or nothing if the log has forgotten."""
    return f" by {deeds[0].actor}" if deeds else ""


def former(deeds: Sequence[Deed], but: str) -> list[str]:
    """What the log knows of other schedules of the same name."""
    return [
        f"an earlier schedule of this name was deleted at {shown(deed.at)}{by([deed])}"
        for deed in deeds
        if deed.action == "delete" and deed.object_id != but
    ][-3:]


def _timing(schedule: Standing, era: Era, deeds: Sequence[Deed], at: datetime) -> str:
    typed = schedule.expression if era.is_current else expression_at(schedule, deeds, at)
    zone = f" {era.tz}" if isinstance(era.spec, CronSpec) else ""
    change = None if era.is_current or era.until_at is None else retimed(schedule, deeds, era.until_at)
    until = f", changed at {shown(change.at)}{by([change])}" if change else ""
    return f"`{typed}`{zone} (version {era.version}{until})"


def _excluded(at: datetime, era: Era, schedule: Standing, excluded_by: Mapping[date, Sequence[str]]) -> Finding | None:
    spec, days = era.spec, days_near(at, era)
    if not days or not isinstance(spec, CronSpec | EverySpec):
        return None
    plain = replace(era, spec=replace(spec, exclude=()))
    slots = plain.fires(minute_of(at), minute_of(at) + 60, 1, bounded=False)
    if not slots:
        return None
    whose = [f"calendar {name!r}" for name in excluded_by.get(days[0], ())]
    whose += ["its own excluded dates"] if days[0] in schedule.exclude_dates else []
    source = " and ".join(whose) or "dates that it excluded then"
    text = f"{shown(instant(slots[0]))} would be an occurrence, but {days[0].isoformat()} is excluded by {source}."
    return Finding(Verdict.EXCLUDED, text)


def _gap(at: datetime, era: Era) -> Finding | None:
    """At a jump of the clocks over wall times that the timing asks for, and leaves out."""
    spec, minute_s = era.spec, minute_of(at)
    if not isinstance(spec, CronSpec):
        return None
    lines = annotated(
        spec, minute_s - 1, [minute_s + 59]
    )  # as if it fired at the minute's end: only the minute is looked at
    note = next((line.note for line in lines if not line.fires and minute_s <= line.at_s < minute_s + 60), None)
    if note is None:
        return None
    text = f"It has no occurrence then, by gap={spec.gap}: {note.removeprefix('skipped: ')} in {spec.tz}."
    return Finding(Verdict.IN_GAP, text)


def _fold(at: datetime, era: Era) -> Finding | None:
    """A wall time that the timing asks for, shown for the first or the second time, and it runs at the other."""
    spec, minute_s = era.spec, minute_of(at)
    if not isinstance(spec, CronSpec):
        return None
    wall_s = minute_s + spec.offsets.at(minute_s).offset_s
    match = spec.walls.next(wall_s)
    if match is None or match >= wall_s + 60:
        return None
    pass_, other = ("second", "first") if spec.fold == "first" else ("first", "second")
    text = (
        f"This is the {pass_} {clock(match)} on {day(match)} in {spec.tz}; the clocks show it twice, and by"
        f" fold={spec.fold} it runs at the {other}."
    )
    return Finding(Verdict.IN_FOLD, text)
