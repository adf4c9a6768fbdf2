"""What this machine's tzdata would move, or have moved, against the data that the cluster's zones are stored with. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from bucketd.scheduler.moves import SpecMoves, read
from bucketd.store import tzdata
from bucketd.store.clock import utc
from bucketd.store.operation import drive
from bucketd.store.tzdata import Timed
from bucketd.timing import CronError, is_zone
from bucketd.timing.shifts import Move, ZoneShift
from bucketd.timing.zones import zone_data

PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Changed:
    """A period in which a zone's clocks show other times: instants in UTC, `until` None: not before the end of the look."""

    since: datetime
    until: datetime | None
    old_offset_s: int
    new_offset_s: int


@dataclass(frozen=True, slots=True)
class MovedSchedule:
    """A schedule, and its first fire that moves: by the old and by the new data. None: it does not fire again by those."""

    tenant: str
    name: str
    zone: str
    old: datetime | None
    new: datetime | None


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone whose data differ here. `state`: moved, same (other bytes, the same times), or why it cannot be told."""

    zone: str
    state: str
    periods: tuple[Changed, ...]
    schedules: int
    first: tuple[MovedSchedule, ...]


def changes(
    connection: psycopg.Connection[Any],
    only: str | None,
    now_s: int,
    until_s: int,
    shown: int,
    progress: Callable[[int, int | None], None],
) -> Iterator[ZoneChange]:
    """Each zone that specs name and whose stored data are not those of this machine; with the first `shown` schedules that move."""
    zones = drive(tzdata.used(), connection)
    read_schedules = 0
    for name, data in zones.items():
        if (only is not None and name != only) or is_same(name, data):
            continue
        shift = _shift(name, data, now_s, until_s)
        if isinstance(shift, str):
            yield ZoneChange(name, shift, (), 0, ())
            continue
        count, first = 0, list[tuple[int, MovedSchedule]]()
        for schedule, move in _moving(connection, shift, now_s) if shift.periods else ():
            count += 1
            read_schedules += 1
            if read_schedules % PAGE == 0:
                progress(read_schedules, None)
            first.append((move.at_s, _shown(name, schedule, move)))
            if len(first) >= 2 * shown:
                first = _earliest(first, shown)
        periods = tuple(_period(*period, until_s) for period in shift.periods)
        found = tuple(one for _, one in _earliest(first, shown))
        yield ZoneChange(name, "moved" if periods else "same", periods, count, found)


def is_same(name: str, data: bytes | None) -> bool:
    """Whether the stored data of a zone are those of this machine."""
    try:
        return data == zone_data(name)
    except CronError:
        return False


def _shift(name: str, data: bytes | None, now_s: int, until_s: int) -> ZoneShift | str:
    if not is_zone(name):
        return "not a zone of this machine's tzdata"
    if data is None:
        return "not stored yet"
    try:
        return ZoneShift(name, data, now_s, until_s)
    except ValueError:
        return "stored data cannot be read"


def _moving(connection: psycopg.Connection[Any], shift: ZoneShift, now_s: int) -> Iterator[tuple[Timed, Move]]:
    after = 0
    while rows := drive(tzdata.specs(shift.name, after, PAGE), connection):
        for after, rule in rows:
            spec = read(rule)
            if spec is None:
                continue
            moves = SpecMoves(shift, spec, now_s)
            cursor: tzdata.Cursor | None = tzdata.FIRST if moves.possible() else None
            while cursor is not None:
                found, cursor = drive(tzdata.schedules(after, cursor, PAGE), connection)
                yield from ((schedule, move) for schedule in found if (move := moves.of(schedule)))


def _earliest(found: list[tuple[int, MovedSchedule]], most: int) -> list[tuple[int, MovedSchedule]]:
    return sorted(found, key=lambda one: (one[0], one[1].tenant, one[1].name))[:most]


def _shown(zone: str, schedule: Timed, move: Move) -> MovedSchedule:
    old, new = (None if at is None else utc(at) for at in move)
    return MovedSchedule(schedule.tenant, schedule.name, zone, old, new)


def _period(from_s: int, to_s: int, old_offset_s: int, new_offset_s: int, until_s: int) -> Changed:
    return Changed(utc(from_s), utc(to_s) if to_s < until_s else None, old_offset_s, new_offset_s)
