"""Step 3 of 5, the statement: fires become rows of `runs`, claimed by the runner that asks.

A fire is (schedule id, timing version, tail) as it stands in a queue message; see fires.py for the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import psycopg
from psycopg.types.string import TextBinaryLoader

from bucketd.store.arrays import Int4s, Uuids
from bucketd.store.results import BUSY_S
from bucketd.store.statements import statements

_CAREFUL = statements("confirm")["confirm"]
# A twin is rare, and looking for one first costs each row a second descent of the key and a record in the log (1.5-2.5 us of 22):
# so the insert is tried plainly, and a batch that meets a twin is sent again with care.
_PLAIN = _CAREFUL.replace("on conflict do nothing  -- absorbed twins", "")
assert _PLAIN != _CAREFUL

FireBytes: TypeAlias = tuple[bytes, bytes, bytes]  # id (16), timing version (4), scheduled_at + previous + next (12)


class Verdict(IntEnum):
    """What confirm says about a fire; the numbers stand in sql/confirm.sql."""

    RUN = 0
    RUNNER_DEAD = 1  # the asking incarnation may take nothing any more: nothing is decided about the fire
    PAUSED = 2
    HELD = 3  # settling gives it a held row
    VERSION = 4  # of older timing, and outside its interval
    FLOOR = 5
    WINDOW = 6  # before starts_at, or from ends_at on
    DAYS = 7  # outside the days that runs has
    EARLY = 8  # not due yet by Postgres's clock: nothing is decided
    LATE = 9  # beyond deadline or misfire threshold, and its policy lets settling decide
    OVERLAP = 10  # another run of its schedule goes on: it has a row, which says that it is skipped or waits
    BUSY = 11  # others of its target or tenant wait for a place: it has a row, behind theirs
    AGAIN = 12  # an older fire of its schedule, in the same batch, asked for the slot: nothing is decided


class Busy(NamedTuple):
    """Where rows wait for a place, so that a new run is to join them. `spared`: targets that a tenant's crowd does not concern."""

    targets: Sequence[int] = ()
    tenants: Sequence[str] = ()
    spared: Sequence[int] = ()


NOBODY = Busy()


class Seen(NamedTuple):
    """One line of confirm's answer. Fires whose schedule is gone have none."""

    n: int  # place in the batch, from 1
    verdict: int
    is_new: bool  # this statement made the row
    payload: str | None  # JSON text as stored
    tenant: str
    name: str
    target_id: int
    timeout_s: int | None
    wait_s: float | None  # EARLY: until due; RUN: the same, so negative
    revisions: str | None  # on one line of the answer: "target:revision,.." of all its targets
    cancelled: str | None  # on one line: the runs that made way for these, "schedule id@epoch in microseconds,.."


def columns(fires: Sequence[FireBytes]) -> dict[str, Any]:
    """The array parameters of a batch."""
    ids, versions, tails = zip(*fires, strict=True)
    ats = [tail[:4] for tail in tails]
    return {
        "ids": Uuids(ids),
        "versions": Int4s(versions),
        "ats": Int4s(ats),
        "nexts": Int4s([tail[8:] for tail in tails]),
        "instants": Int4s(list(set(ats))),
    }


async def confirm(
    connection: psycopg.AsyncConnection[Any],
    runner_id: UUID,
    claim: int,
    arrays: dict[str, Any],
    *,
    dead_after_s: float,
    again: bool,
    busy: Busy = NOBODY,
) -> list[tuple[Any, ...]]:
    """Makes the rows of the fires that may run; lines as `Seen` (plain tuples: 2,000 objects cost more than the query's reply).

    `again`: the same claim was sent before and its reply was lost; call data then comes for refused fires too, because the
    earlier try may have taken them. Repeating is harmless. Raises psycopg.Error; one bad row fails the whole batch.
    """
    cursor = connection.cursor(binary=True)
    cursor.adapters.register_loader("json", TextBinaryLoader)  # payloads are spliced into bodies, never parsed
    parameters = {
        "runner": runner_id, "claim": claim, "dead_after_s": dead_after_s, "again": again, **arrays,
        "busy_targets": list(busy.targets), "busy_tenants": list(busy.tenants), "spared": list(busy.spared), "busy_s": BUSY_S,
    }  # fmt: skip
    try:
        await cursor.execute(_CAREFUL if again else _PLAIN, parameters)
    except psycopg.errors.UniqueViolation:
        await cursor.execute(_CAREFUL, parameters)
    return await cursor.fetchall()


async def mine(connection: psycopg.AsyncConnection[Any], claim: int, arrays: dict[str, Any]) -> set[int]:
    """Places (from 1) of the fires whose rows this claim holds, after a lost reply."""
    cursor = connection.cursor(binary=True)
    parameters = {"claim": claim, "ids": arrays["ids"], "ats": arrays["ats"]}
    await cursor.execute(statements("confirm")["mine"], parameters)
    return {n for (n,) in await cursor.fetchall()}
