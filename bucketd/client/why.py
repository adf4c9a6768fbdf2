"""`client.schedules.why`: reads what there is about a schedule and an instant, in bounded steps, and has it decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from bucketd.client import checks
from bucketd.errors import InvalidInput, NotFound
from bucketd.explain import off_spec
from bucketd.explain.absence import Scene, absence
from bucketd.explain.answer import Answer, Finding, Verdict, shown
from bucketd.explain.pauses import pauses
from bucketd.explain.question import Choice, Reading, choose, local, made_up, probes, read_wall
from bucketd.explain.rows import Context, due_of, fate
from bucketd.explain.timeline import LAST_S, Era, Timeline, instant
from bucketd.store import evidence, history
from bucketd.store.evidence import DEEDS, Deed, Found, Standing
from bucketd.store.history import Run
from bucketd.store.operation import Operation
from bucketd.timing import CronSpec
from bucketd.timing.notes import annotated
from bucketd.timing.offsets import DAY_S

CARRIER_SLOTS = 20_000  # later occurrences among which the one that counts a missed one is looked for
_IDS = 10  # schedules of one name, one after the other, that are looked at


def why(tenant: str, name: str, at: datetime, dead_after_s: float) -> Operation[Answer]:
    """The answer. Raises InvalidInput, NotFound."""
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    if not isinstance(at, datetime):
        raise InvalidInput(f"expected a datetime in at, got {at!r}", field="at")
    found = yield from evidence.standing(*key)
    if found.schedule is None:
        return (yield from _gone(key, _bounded(_aware(at)), found))
    return (yield from _Inquiry(key, found, found.schedule).answer(at, dead_after_s))


class _Inquiry:
    """One question about a schedule that exists, with what was read for it so far."""

    def __init__(self, key: tuple[str, str], found: Found, schedule: Standing) -> None:
        self._key, self._found, self._schedule = key, found, schedule

    def answer(self, at: datetime, dead_after_s: float) -> Operation[Answer]:
        schedule = self._schedule
        zone = Timeline(schedule, ()).current.tz
        reading = _read(at, zone) if at.utcoffset() is None else Reading((_bounded(at.astimezone(UTC)),))
        around = reading.instants[0]
        self._service = yield from evidence.service(schedule.partition, dead_after_s)  # before the rows
        self._deeds = yield from evidence.deeds(*self._key, around)
        self._timeline = Timeline(schedule, (yield from evidence.versions(schedule.id, around)))
        later = sum(deed.at > around for deed in self._deeds)
        self._pauses = pauses(schedule, self._deeds, cut_off=later >= DEEDS)
        asked, choice = yield from _chosen(self._timeline, reading, at, _ids(schedule.id, self._deeds))
        finding, run = yield from self._decided(asked, choice)
        slot = None if finding.verdict is Verdict.NOT_YET_CREATED else choice.slot
        due = None if slot is None else _due(slot, choice, run)
        facts = [fact for fact in (reading.note, choice.note if slot else None) if fact]
        facts += [*finding.facts, *_told(slot, due, choice.era)]
        before, after = self._timeline.before(slot or asked), self._timeline.after(slot or asked)
        return Answer(finding.verdict, finding.text, tuple(facts), *self._key, asked, slot, due, before, after, run)

    def _decided(self, asked: datetime, choice: Choice) -> Operation[tuple[Finding, Run | None]]:
        """The verdict, and the run that it is about."""
        schedule, deeds, slot, era = self._schedule, self._deeds, choice.slot, choice.era
        if slot is not None and choice.row_of is not None:
            run = yield from history.get(choice.row_of, slot)
            return (yield from _of_row(self._key, run, self._found, deeds, self._service.runners)), run
        early = off_spec.before_creation(schedule, deeds, slot or asked)
        if early is not None:
            return early, None
        if slot is None or era is None:
            era = era or self._timeline.nearest(asked)
            if choice.unasked:
                return off_spec.not_in_spec("The wall time asked about", asked, era, schedule, deeds), None
            return (yield from self._no_occurrence(asked, era)), None
        if not choice.in_bounds:
            return off_spec.outside(choice, schedule, self._timeline, deeds), None
        return (yield from self._no_row(slot, slot + timedelta(seconds=era.jitter_s)))

    def _no_occurrence(self, at: datetime, era: Era) -> Operation[Finding]:
        days = off_spec.days_near(at, era)
        excluded_by: dict[date, list[str]] = {}
        for calendar, day in (yield from evidence.calendars(self._key[0], self._schedule.calendars, days)):
            excluded_by.setdefault(day, []).append(calendar)
        finding = off_spec.no_occurrence(at, era, self._schedule, self._deeds, excluded_by)
        if finding.verdict is not Verdict.NOT_IN_SPEC:
            return finding
        earlier = off_spec.earlier_timing(at, era, self._schedule, self._timeline, self._deeds)
        return replace(finding, facts=finding.facts + earlier)

    def _no_row(self, slot: datetime, due: datetime) -> Operation[tuple[Finding, Run | None]]:
        found, schedule = self._found, self._schedule
        is_past = due <= found.now
        carrier = (yield from _carrier(self._timeline, schedule, slot, found.now)) if is_past else None
        owed = (yield from evidence.owed(schedule.partition, schedule.id, due)) if is_past else None
        holds = yield from evidence.holds(self._key[0], schedule.target_id)
        finding = absence(
            Scene(
                slot, due, found.now, found.days_from, schedule, self._pauses, self._deeds, self._service, holds, owed, carrier,
            )
        )  # fmt: skip
        return finding, carrier if finding.verdict is Verdict.COUNTED else None


def _chosen(
    timeline: Timeline, reading: Reading, wall: datetime, ids: Sequence[UUID]
) -> Operation[tuple[datetime, Choice]]:
    """(instant, what is meant). Of both instants of a fold the first that is an occurrence; of none the one it is made up at."""
    instants = reading.instants
    if reading.missing:
        era = timeline.nearest(instants[0])
        at = made_up(era, wall, reading)
        if at is None:
            return instants[0], Choice(None, era, unasked=True)
        instants = (at,)
    choices: list[tuple[datetime, Choice]] = []
    for at in instants:
        choices.append((at, choose(timeline, at, (yield from evidence.rows_at(ids, probes(timeline, at))))))
    return next(((at, one) for at, one in choices if one.slot and one.in_bounds), choices[0])


def _of_row(key: tuple[str, str], run: Run, found: Found, deeds: Sequence[Deed], runners: int) -> Operation[Finding]:
    target_id = found.schedule.target_id if found.schedule else 0
    run_deeds = yield from evidence.run_deeds(*key, run.id)
    own = [deed for deed in deeds if deed.object_id == str(run.schedule_id)]
    holds = yield from evidence.holds(run.tenant, target_id)
    return fate(run, Context(found.now, run_deeds, own, holds, runners))


def _gone(key: tuple[str, str], at: datetime, found: Found) -> Operation[Answer]:
    """Of a schedule that was deleted: its rows are there still, its timing is not."""
    deeds = yield from evidence.deeds(*key, at)
    ids = _ids(None, deeds)
    if not ids:
        raise NotFound(f"expected the name of a schedule of tenant {key[0]!r}, got {key[1]!r}, which never existed")
    choice = choose(None, at, (yield from evidence.rows_at(ids, probes(None, at))))
    if choice.row_of is None or choice.slot is None:
        finding = off_spec.deleted(deeds, at)
        return Answer(finding.verdict, finding.text, finding.facts, *key, at)
    run = yield from history.get(choice.row_of, choice.slot)
    finding = yield from _of_row(key, run, found, deeds, 1)
    facts = [*([choice.note] if choice.note else ()), *finding.facts, off_spec.deleted(deeds, found.now).text[:-1]]
    return Answer(finding.verdict, finding.text, tuple(facts), *key, at, run.scheduled_at, due_of(run), run=run)


def _carrier(timeline: Timeline, schedule: Standing, slot: datetime, now: datetime) -> Operation[Run | None]:
    """The run that counts an occurrence: the first later row with a count, if that reaches back as far."""
    slot_s, end_s = int(slot.timestamp()), int(now.timestamp()) + 1
    later = timeline.fires(slot_s + 1, end_s, CARRIER_SLOTS)
    instants = [instant(at_s) for at_s, _ in later]
    found = yield from evidence.carrier(schedule.id, instants)
    if found is not None:
        missed = 1 + sum(at < found.at for at in instants) - found.rows_before
        return (yield from history.get(schedule.id, found.at)) if missed <= found.missed else None
    if len(instants) < CARRIER_SLOTS or schedule.floor <= instants[-1]:
        return None
    far = yield from evidence.carrier(
        schedule.id, [schedule.floor]
    )  # where settling raised it to, if nothing did since
    return (yield from history.get(schedule.id, far.at)) if far else None


def _ids(current: UUID | None, deeds: Sequence[Deed]) -> list[UUID]:
    """The schedules that have or had the name."""
    former = {UUID(deed.object_id): None for deed in reversed(deeds) if deed.action in ("create", "delete")}
    return list({**({current: None} if current else {}), **former})[:_IDS]


def _told(slot: datetime | None, due: datetime | None, era: Era | None) -> list[str]:
    """What the clocks show at the occurrence, and do to it."""
    if slot is None or era is None:
        return []
    facts = [f"that is {local(slot, era.tz)}"] if era.tz != "UTC" else []
    if due is not None and due != slot:
        facts.append(f"due at {shown(due)}, by its jitter")
    if isinstance(era.spec, CronSpec) and slot.microsecond == 0:
        at_s = int(slot.timestamp())
        lines = annotated(era.spec, at_s - DAY_S, [at_s])  # a time is shifted by the length of a jump, a day at most
        facts += [line.note for line in lines if line.fires and line.note]
    return facts


def _due(slot: datetime, choice: Choice, run: Run | None) -> datetime:
    if run is not None and run.scheduled_at == slot:
        return due_of(run)
    return slot + timedelta(seconds=choice.era.jitter_s if choice.era else 0)


def _read(wall: datetime, zone: str) -> Reading:
    _bounded(wall.replace(tzinfo=UTC))
    return read_wall(wall, zone)


def _aware(at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise InvalidInput(
            f"expected a time with an offset, got {at.isoformat()}: the schedule is deleted, and its zone with it",
            field="at",
        )
    return at.astimezone(UTC)


def _bounded(at: datetime) -> datetime:
    if not 86_400 <= at.timestamp() < LAST_S - 86_400:
        raise InvalidInput(f"expected an instant from 1970 to 2106-02-06, got {at.isoformat()}", field="at")
    return at
