"""Settling in Postgres: what of a window has no row, the verdicts, and the watermark. All in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.store.plan import mask_of
from bucketd.store.statements import statements

_SQL = statements("settle")


class Watermark(NamedTuple):
    """Where a locked partition stands."""

    partition: int
    settled_through_s: int
    feed_snapshot: str
    now_s: float


class Slot(NamedTuple):
    """An occurrence, with the timing that made it."""

    schedule_id: UUID
    at_s: int
    spec_id: int
    phase: int
    jitter_offset_s: int


class DueRange(NamedTuple):
    """Due phases [lo, hi) of one spec, with the one instant meant (a cron with jitter) or the period (an interval)."""

    spec_id: int
    lo: int
    hi: int
    at_s: int | None
    every_s: int | None


class VersionRow(NamedTuple):
    """Timing of a schedule for the instants in [from_s, until_s)."""

    schedule_id: UUID
    spec_id: int
    phase: int
    jitter_offset_s: int
    from_s: float
    until_s: float


class Candidate(NamedTuple):
    """An occurrence without a row, with what judging it needs."""

    schedule_id: UUID
    at_s: int
    jitter_offset_s: int
    tenant: str
    target_id: int
    misfire: str
    threshold_s: int
    deadline_s: int | None
    held: bool
    ends_s: int | None = None  # no slot lies at or after
    catch_up_window_s: int = 86_400
    catch_up_cap: int = 1_000


@dataclass(frozen=True, slots=True)
class NewRun:
    """A row that a verdict writes."""

    slot: Candidate
    status: str
    origin: str
    missed: int
    background: bool
    reason: str | None


async def lock(connection: AsyncConnection[Any], epochs: Mapping[int, int], *, compare: bool) -> list[Watermark]:
    """Locks the watermarks of partitions that are still the caller's by epoch."""
    parameters = {"partitions": list(epochs), "epochs": list(epochs.values()), "compare": compare}
    return [Watermark(*row) for row in await (await connection.execute(_SQL["lock"], parameters)).fetchall()]


async def ensure_days(connection: AsyncConnection[Any]) -> None:
    """Makes the days of runs up to tomorrow's if today's is missing. In a transaction of its own."""
    await connection.execute(_SQL["days"])


async def late(
    connection: AsyncConnection[Any], cursor: str, partitions: Iterable[int], settled_s: int
) -> tuple[str, list[VersionRow]]:
    """(snapshot to store, timings whose transaction committed after the cursor but reach back behind the watermark)."""
    parameters = {"cursor": cursor, "mask": mask_of(partitions), "settled": settled_s}
    rows = await (await connection.execute(_SQL["late"], parameters)).fetchall()
    snapshot = str(next(row[0] for row in rows if row[0] is not None))
    return snapshot, [
        VersionRow(row[1], row[2], row[3], row[4], row[5], settled_s + 1) for row in rows if row[0] is None
    ]


async def whole(
    connection: AsyncConnection[Any],
    specs: Sequence[int],
    ats: Sequence[int],
    partitions: Iterable[int],
    bounds: tuple[int, int],
) -> list[Slot]:
    """Occurrences of unjittered crons that have no row; `bounds`: instants that enclose all `ats`."""
    if not specs:
        return []
    parameters = {
        "specs": list(specs),
        "ats": list(ats),
        "mask": mask_of(partitions),
        "low": bounds[0],
        "high": bounds[1],
    }
    rows = await (await connection.execute(_SQL["whole"], parameters)).fetchall()
    return [Slot(schedule_id, at_s, spec_id, 0, 0) for schedule_id, at_s, spec_id in rows]


async def ranges(
    connection: AsyncConnection[Any],
    wanted: Sequence[DueRange],
    partitions: Iterable[int],
    window: tuple[int, int],
    bounds: tuple[int, int],
) -> list[Slot]:
    """Occurrences due in `window` of schedules found by due phase that have no row."""
    if not wanted:
        return []
    specs, los, his, ats, everies = (list(column) for column in zip(*wanted, strict=True))
    parameters = {
        "specs": specs, "los": los, "his": his, "ats": ats, "everies": everies, "mask": mask_of(partitions),
        "start": window[0], "end": window[1], "low": bounds[0], "high": bounds[1],
    }  # fmt: skip
    return [Slot(*row) for row in await (await connection.execute(_SQL["ranges"], parameters)).fetchall()]


async def versions(
    connection: AsyncConnection[Any], since_s: int, until_s: int, partitions: Iterable[int]
) -> list[VersionRow]:
    """Closed intervals that reach into [since_s, until_s)."""
    parameters = {"since": since_s, "until": until_s, "mask": mask_of(partitions)}
    return [VersionRow(*row) for row in await (await connection.execute(_SQL["versions"], parameters)).fetchall()]


async def pin_holds(connection: AsyncConnection[Any]) -> None:
    """Keeps the holds of now until the end of the transaction, so that none ends between a verdict and its row."""
    await connection.execute(_SQL["pin_holds"])


async def candidates(connection: AsyncConnection[Any], slots: Sequence[Slot]) -> list[Candidate]:
    """Of these occurrences those without a row that may still get one, by schedule and instant."""
    if not slots:
        return []
    ids, ats, specs, phases, jitters = (list(column) for column in zip(*slots, strict=True))
    parameters = {
        "ids": ids, "ats": ats, "specs": specs, "phases": phases, "jitters": jitters, "low": min(ats), "high": max(ats) + 1,
    }  # fmt: skip
    rows = await (await connection.execute(_SQL["candidates"], parameters)).fetchall()
    return [Candidate(*row) for row in rows]


async def covers(connection: AsyncConnection[Any], slots: Sequence[tuple[UUID, int]]) -> dict[UUID, int]:
    """Per schedule the newest of these occurrences that a runner confirmed late."""
    if not slots:
        return {}
    ids, ats = (list(column) for column in zip(*slots, strict=True))
    parameters = {"ids": ids, "ats": ats, "low": min(ats), "high": max(ats) + 1}
    return dict(await (await connection.execute(_SQL["covers"], parameters)).fetchall())


async def carry(connection: AsyncConnection[Any], slots: Sequence[Slot], missed: Mapping[UUID, int]) -> dict[UUID, int]:
    """Adds each schedule's count to the oldest of its slots that has a row; returns where that is, for the floors."""
    if not slots or not missed:
        return {}
    ats = [slot.at_s for slot in slots]
    parameters = {
        "ids": [slot.schedule_id for slot in slots], "ats": ats, "low": min(ats), "high": max(ats) + 1,
        "counted": list(missed), "missed": list(missed.values()),
    }  # fmt: skip
    return dict(await (await connection.execute(_SQL["carry"], parameters)).fetchall())


async def write(connection: AsyncConnection[Any], runs: Sequence[NewRun], floors: Mapping[UUID, int]) -> None:
    """Writes verdicts, then raises the floors past what was counted, in key order (no deadlock with another writer)."""
    if runs:
        parameters = {
            "ids": [run.slot.schedule_id for run in runs],
            "ats": [run.slot.at_s for run in runs],
            "tenants": [run.slot.tenant for run in runs],
            "targets": [run.slot.target_id for run in runs],
            "jitters": [run.slot.jitter_offset_s for run in runs],
            "statuses": [run.status for run in runs],
            "origins": [run.origin for run in runs],
            "missed": [run.missed for run in runs],
            "backgrounds": [run.background for run in runs],
            "reasons": [run.reason for run in runs],
        }
        await connection.execute(_SQL["insert"], parameters)
    if floors:
        await connection.execute(_SQL["floors"], {"ids": list(floors), "floors": list(floors.values())})


async def owe(connection: AsyncConnection[Any], partitions: Iterable[int], from_s: int, until_s: int) -> None:
    """Writes that (from_s, until_s] of these partitions is owed and will be expanded in chunks."""
    await connection.execute(_SQL["backfill"], {"partitions": list(partitions), "from_s": from_s, "until_s": until_s})


async def advance(connection: AsyncConnection[Any], partitions: Iterable[int], through_s: int, snapshot: str) -> None:
    """Moves the watermarks of locked partitions."""
    await connection.execute(
        _SQL["advance"], {"partitions": list(partitions), "through": through_s, "snapshot": snapshot}
    )
