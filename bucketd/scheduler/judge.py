"""Judging: slots that should have a row are probed, and those without get one. Settling and expansion both end here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from bucketd.scheduler.specbook import SpecBook
from bucketd.scheduler.verdicts import by_schedule, is_late, verdicts
from bucketd.store import settle
from bucketd.store.settle import Candidate, Slot

STATEMENT_SLOTS = 10_000
COVER_SLOTS = 5  # only a slot whose successor is over a threshold away is confirmed late, so few can have come after it


async def judge_slots(
    connection: AsyncConnection[Any],
    book: SpecBook,
    slots: list[Slot],
    now_s: float,
    unlisted: Mapping[UUID, int] | None = None,
) -> tuple[int, Counter[str]]:
    """Writes verdicts and floors for the slots that have no row, in the caller's transaction; (missing, rows written by verdict)."""
    slots.sort(key=lambda slot: slot.schedule_id)
    missing = start = 0
    written: Counter[str] = Counter()
    if slots:
        await settle.pin_holds(connection)  # guard: pinned-holds
    while start < len(slots):
        end = min(start + STATEMENT_SLOTS, len(slots))
        while end < len(slots) and slots[end].schedule_id == slots[end - 1].schedule_id:
            end += 1  # a policy looks at all slots of its schedule together
        candidates = await settle.candidates(connection, slots[start:end])
        covers = await settle.covers(connection, _possible_covers(book, candidates, slots[start:end], now_s))
        runs, floors = verdicts(candidates, now_s, unlisted=unlisted, covers=covers)
        floors |= await _carry(connection, slots[start:end], candidates, unlisted or {})
        await settle.write(connection, runs, floors)
        written.update(f"skipped_{run.reason}" if run.status == "skipped" else run.status for run in runs)
        missing, start = missing + len(candidates), end
    return missing, written


async def _carry(
    connection: AsyncConnection[Any], slots: list[Slot], candidates: list[Candidate], unlisted: Mapping[UUID, int]
) -> dict[UUID, int]:
    """Floors of schedules whose listed slots all have rows: a row that is there takes the count of what is older."""
    rest = {slot.schedule_id for slot in slots} - {candidate.schedule_id for candidate in candidates}
    missed = {id: count for id, count in unlisted.items() if count and id in rest}
    return await settle.carry(connection, [slot for slot in slots if slot.schedule_id in missed], missed)


def _possible_covers(
    book: SpecBook, candidates: list[Candidate], slots: list[Slot], now_s: float
) -> list[tuple[UUID, int]]:
    """The newest slots, as of now, of run_once schedules that missed one: a runner may have confirmed one of them late."""
    timing = {slot.schedule_id: slot for slot in slots}  # the current one comes last
    found: list[tuple[UUID, int]] = []
    for group in by_schedule(candidates):
        late = [slot for slot in group if is_late(slot, now_s)]
        if not late or group[0].misfire != "run_once" or group[0].held:
            continue
        known = timing[group[0].schedule_id]
        before = int(now_s) + 1 - known.jitter_offset_s
        if group[0].ends_s is not None:
            before = min(before, group[0].ends_s)
        for _ in range(COVER_SLOTS):
            at = book.previous(known.spec_id, before, known.phase)
            if at is None or at <= late[-1].at_s:
                break
            found.append((known.schedule_id, at))
            before = at
    return found
