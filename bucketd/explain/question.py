"""Which occurrence somebody means who names an instant: the one of that instant, or else the one of the same minute.

People type 09:00 for what fires at 09:00:37, and the instant at which a jittered occurrence was due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from bucketd.explain.answer import shown
from bucketd.explain.timeline import Era, Timeline, instant
from bucketd.timing import CronSpec
from bucketd.timing.notes import clock, day
from bucketd.timing.offsets import ZoneOffsets, offsets_of
from bucketd.timing.zones import zone

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the answer is about. `slot`: an occurrence or a row; None: neither is meant. `era`: the timing that made it.

    row_of: the schedule whose row stands there. in_bounds: the timing held for it. unasked: a wall time that does not exist, and that
    the timing does not ask for. note: how the choice was made.
    """

    slot: datetime | None
    era: Era | None = None
    row_of: UUID | None = None
    in_bounds: bool = True
    unasked: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The instants that a wall time may mean: one, both of a fold, or the one that a missing time is taken for.

    `missing`: the clocks never showed it. `note`: what they did.
    """

    instants: tuple[datetime, ...]
    missing: bool = False
    note: str | None = None


def minute_of(at: datetime) -> int:
    """The first second of the minute, epoch seconds."""
    return int(at.timestamp()) // 60 * 60


def probes(timeline: Timeline | None, at: datetime) -> list[datetime]:
    """The instants at which a row may be meant: the exact one, each second of the minute, and what was due in it."""
    minute_s = minute_of(at)
    found = {at, *(instant(minute_s + second) for second in range(60))}
    if timeline is not None:
        found |= {instant(at_s) for at_s, _ in _due(timeline, minute_s)}
    return sorted(found)


def choose(timeline: Timeline | None, at: datetime, rows: Sequence[tuple[datetime, UUID]]) -> Choice:
    """What is meant by `at`; `rows`: those that stand at one of the probes."""
    minute_s, owners = minute_of(at), dict(rows)
    same_minute = [slot for slot in owners if minute_of(slot) == minute_s]
    listed = [] if timeline is None else timeline.fires(minute_s, minute_s + 60, 60)
    eras = {instant(at_s): era for at_s, era in listed}
    if at in eras or at in owners:
        return Choice(at, _era(timeline, eras, at), owners.get(at))
    for slots in (eras, same_minute):
        if slots:
            slot = _closest(slots, at)
            return Choice(slot, _era(timeline, eras, slot), owners.get(slot), note=_not_itself(at, slot))
    if timeline is None:
        return Choice(None)
    if due := {instant(at_s): era for at_s, era in _due(timeline, minute_s)}:
        slot = _closest(due, at)
        note = (
            f"this is about the occurrence of {shown(slot)}, which its jitter of {due[slot].jitter_s} s made due then"
        )
        return Choice(slot, due[slot], owners.get(slot), note=note)
    return _outside(timeline, at, minute_s)


def read_wall(wall: datetime, tz: str) -> Reading:
    """What a time of the wall clock of a zone means."""
    info = zone(tz)
    both = [wall.replace(tzinfo=info, fold=fold).astimezone(UTC) for fold in (0, 1)]
    shown_then = sorted({at for at in both if at.astimezone(info).replace(tzinfo=None) == wall})
    wall_s = _wall_s(wall)
    if len(shown_then) == 2:
        note = f"{clock(wall_s)} occurs twice on {day(wall_s)} in {tz}: {' and '.join(map(shown, shown_then))}"
        return Reading(tuple(shown_then), note=note)
    if shown_then:
        return Reading(tuple(shown_then))
    jump = offsets_of(tz).at(int(both[0].timestamp()))  # read with the offset before the jump: just behind it
    was, became = clock(jump.lo_s + jump.before_s), clock(jump.lo_s + jump.offset_s)
    note = f"{clock(wall_s)} does not exist on {day(wall_s)} in {tz}: the clocks go from {was} to {became}"
    return Reading((instant(jump.lo_s), both[0]), missing=True, note=note)


def made_up(era: Era, wall: datetime, reading: Reading) -> datetime | None:
    """The instant at which a timing runs, or leaves out, a missing wall time; None: it does not ask for that time."""
    spec, wall_s = era.spec, _wall_s(wall) // 60 * 60
    at_jump, shifted = reading.instants
    if not isinstance(spec, CronSpec):
        return at_jump
    match = spec.walls.next(wall_s)
    if match is None or match >= wall_s + 60:
        return None
    return shifted if spec.gap == "shift" else at_jump


def local(at: datetime, tz: str) -> str:
    """The wall clock at an instant, `Mon 2026-11-30 10:00:00+01:00 Europe/Berlin`."""
    info: ZoneInfo = zone(tz)
    there = at.astimezone(info)
    return f"{there:%a} {there.isoformat(sep=' ', timespec='seconds')} {tz}"


def offsets(era: Era) -> ZoneOffsets:
    """The zone that a timing is read in."""
    return offsets_of(era.tz)


def _due(timeline: Timeline, minute_s: int) -> list[tuple[int, Era]]:
    return [
        (at_s, era)
        for era in timeline.eras
        if era.jitter_s
        for at_s in era.fires(minute_s - era.jitter_s, minute_s - era.jitter_s + 60, 60)
    ]


def _era(timeline: Timeline | None, eras: dict[datetime, Era], slot: datetime) -> Era | None:
    return eras.get(slot) or (timeline.holding(slot) if timeline else None)


def _closest(slots: Iterable[datetime], at: datetime) -> datetime:
    return min(slots, key=lambda slot: (abs(slot - at), slot))


def _not_itself(at: datetime, slot: datetime) -> str:
    return f"{shown(at)} is no occurrence itself; this is about the one of the same minute, {shown(slot)}"


def _outside(timeline: Timeline, at: datetime, minute_s: int) -> Choice:
    """An occurrence of the minute by a timing that did not hold then: the one that held nearest to it, or else today's."""
    for era in (timeline.nearest(at), timeline.current):
        slots = [instant(at_s) for at_s in era.fires(minute_s, minute_s + 60, 60, bounded=False)]
        if slots:
            slot = _closest(slots, at)
            return Choice(slot, era, in_bounds=False, note=None if slot == at else _not_itself(at, slot))
    return Choice(None, timeline.nearest(at))


def _wall_s(wall: datetime) -> int:
    return (wall - _EPOCH) // timedelta(seconds=1)
