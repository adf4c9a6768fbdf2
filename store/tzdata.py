"""The zones' data that the cluster computes with: their version, their bytes, and the schedules that a change of them moves.

`tzdata_version` names the data of whoever may compute now. While `tzdata_from` is set, what the older ones made is still being
moved, zone by zone: the bytes of a zone change when its schedules have moved, so who goes on after a crash sees what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "tzdata"
Cursor: TypeAlias = tuple[
    bool, int
]  # whether the paused ones are being read, and the partition up to which that is done
FIRST: Cursor = (False, -1)


@dataclass(frozen=True, slots=True)
class State:
    """The cluster's version since `at`; None: no node has come yet. `moving_from`: schedules are being moved from that one.

    `begun`: from here on nobody plans by older data; None: not sure yet.
    """

    version: str | None
    moving_from: str | None
    at: datetime | None
    begun: datetime | None
    now_s: float


class SpecRow(NamedTuple):
    """A spec of a zone."""

    spec_id: int
    rule: str


class Timed(NamedTuple):
    """A schedule with what its timing is; instants in epoch seconds, those before `from_s` are of older timing or below the floor."""

    id: UUID
    tenant: str
    name: str
    spec_id: int
    phase: int
    jitter_offset_s: int
    paused: bool
    partition: int
    starts_s: float | None
    ends_s: float | None
    timing_from_s: float
    from_s: float
    settled_through_s: int


def state() -> Operation[State]:
    """Where the cluster stands."""
    version, moving_from, at, begun, now_s = (yield Query(statements(_SQL)["state"]))[0]
    return State(version, moving_from, at and at.astimezone(UTC), begun and begun.astimezone(UTC), now_s)


def adopt(version: str, seen: str | None) -> Operation[bool]:
    """Takes the cluster over to `version` if it is still at `seen`; whether that happened."""
    return bool((yield Query(statements(_SQL)["adopt"], {"version": version, "seen": seen})))


def begin(version: str) -> Operation[datetime | None]:
    """Notes that nobody plans by older data any more; since when. None: there is nothing to move, or the version is another."""
    rows = yield Query(statements(_SQL)["begin"], {"version": version})
    return rows[0][0] if rows else None


def finish(version: str) -> Operation[None]:
    """Notes that everything is moved. Data of zones that nothing names are dropped: nobody has kept them up to date."""
    yield Query(statements(_SQL)["finish"], {"version": version})
    yield Query(statements(_SQL)["forget"])


def used() -> Operation[dict[str, bytes | None]]:
    """Zones that specs name, in order, with their data as stored; None: they are not."""
    return {name: data and bytes(data) for name, data in (yield Query(statements(_SQL)["used"]))}


def unkept() -> Operation[list[str]]:
    """Zones that specs name and whose data are not stored."""
    return [name for (name,) in (yield Query(statements(_SQL)["unkept"]))]


def keep(version: str, data: Mapping[str, bytes], *, replace: bool) -> Operation[None]:
    """Stores zones' data, unless the cluster has gone over to another version. `replace`: also of zones that have some."""
    values = {"version": version, "names": list(data), "data": list(data.values()), "replace": replace}
    yield Query(statements(_SQL)["keep"], values)


def specs(zone: str, after: int, most: int) -> Operation[list[SpecRow]]:
    """At most `most` specs of a zone by id, after one."""
    rows = yield Query(statements(_SQL)["specs"], {"zone": zone, "after": after, "most": most})
    return [SpecRow(*row) for row in rows]


def schedules(spec_id: int, cursor: Cursor, most: int) -> Operation[tuple[list[Timed], Cursor | None]]:
    """A page of a spec's schedules, from FIRST on, and the cursor of the next one. It has `most` and the rest of a partition."""
    paused, partition = cursor
    values = {"spec": spec_id, "after": partition, "most": most}
    found = [Timed(*row) for row in (yield Query(statements(_SQL)["paused" if paused else "active"], values))]
    if len(found) >= most:
        return found, (paused, found[-1].partition)
    return found, None if paused else (True, -1)


def retime(floors: Mapping[UUID, int | None], begun: datetime) -> Operation[list[UUID]]:
    """A timing edit of the schedules whose timing is older than `begun`, which ones; each with a floor (epoch seconds) or None."""
    values = {"ids": list(floors), "floors": list(floors.values()), "begun": begun}
    return [id for (id,) in (yield Query(statements(_SQL)["retime"], values))]


def counts(zones: Sequence[str], bound: int) -> Operation[dict[str, int]]:
    """How many schedules name each zone, counted to `bound`."""
    found = {}
    for zone in zones:
        found[zone] = (yield Query(statements(_SQL)["count"], {"zone": zone, "bound": bound}))[0][0]
    return found
