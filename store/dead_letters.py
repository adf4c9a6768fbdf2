"""Dead letters: runs that failed for good, kept until somebody replays or discards them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store.errors import NotFound
from bucketd.store.model import run_id
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements
from bucketd.store.walks import by_index

_SQL = "dead_letters"
STRETCH = 5_000  # letters a transaction
SHOWN = 5  # letters that stay, in the account of a replay


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A run that failed for good. `target` is None if that was deleted since.

    payload: as the schedule had it when the run died. failures: one map a failed attempt with `attempt`, `began`, `at` (its end),
    `status` and `error`; an attempt whose runner was lost has none. changed: what of the schedule is different by now (`payload`,
    `target`), which a replay would use; None: the schedule is gone. hook: `waiting`, `told` or `given up`, after hook_tries; None:
    there is none to tell.
    """

    id: int
    run_id: str
    schedule_id: UUID
    scheduled_at: datetime
    tenant: str
    name: str
    target: str | None
    payload: Any
    reason: str
    attempts: int
    failures: tuple[Mapping[str, Any], ...]
    died_at: datetime
    changed: tuple[str, ...] | None = ()
    hook: str | None = None
    hook_tries: int = 0


class Filter(NamedTuple):
    """Which letters; None means any. `labels`: JSON; those that their schedules have now. `died_until`: not with it."""

    tenant: str | None = None
    name: str | None = None
    target: str | None = None
    reason: str | None = None
    labels: str | None = None
    died_from: datetime | None = None
    died_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. `left`: letters that cannot go back and stay; `in_the_way`: of some of them, why.

    `next_at`: when one more would have started, which is when all of these have been started; None: nothing was looked at.
    """

    replayed: int = 0
    left: int = 0
    in_the_way: tuple[str, ...] = ()
    next_at: datetime | None = None


def list_before(letters: Filter, before: int | None, limit: int) -> Operation[list[DeadLetter]]:
    """At most `limit` letters, newest first, of ids below `before`."""
    return (yield from _list(letters, None, before, limit))


def get(letter_id: int) -> Operation[DeadLetter]:
    """The letter of this id. Raises NotFound."""
    found = yield from _list(Filter(), [letter_id], None, 1)
    if not found:
        raise NotFound(f"expected the id of a dead letter, got {letter_id}, which does not exist; see dead.list")
    return found[0]


def last() -> Operation[int]:
    """The newest id; 0: there is none."""
    rows = yield Query(statements(_SQL)["last"])
    return int(rows[0][0])


def find(letters: Filter, after: int, last_id: int, limit: int) -> Operation[list[int]]:
    """Ids of letters that fit, oldest first, after an id and up to another."""
    values = {**letters._asdict(), "after": after, "last": last_id, "limit": limit}
    return [row[0] for row in (yield Query(statements(_SQL)["find"], values))]


def replay(ids: Sequence[int], done: Replayed, *, apart_s: float, dry_run: bool) -> Operation[tuple[Replayed, int]]:
    """Sends the runs of these letters back, behind what was `done`: all that is done now, and how many of these letters there were.

    In a transaction of the caller's. A run starts `apart_s` after the one before, the first at done.next_at or now.
    """
    values = {"ids": list(ids), "first_at": done.next_at, "apart_s": apart_s, "dry_run": dry_run}
    rows = yield from by_index(Query(statements(_SQL)["replay"], values))
    seen, replayed, next_at, in_the_way = rows[0]
    told = (*done.in_the_way, *in_the_way)[:SHOWN]
    return Replayed(done.replayed + replayed, done.left + seen - replayed, told, next_at.astimezone(UTC)), seen


def discard(ids: Sequence[int]) -> Operation[int]:
    """Deletes these letters; how many there were."""
    return len((yield Query(statements(_SQL)["discard"], {"ids": list(ids)})))


def _list(letters: Filter, ids: list[int] | None, before: int | None, limit: int) -> Operation[list[DeadLetter]]:
    values = {**letters._asdict(), "ids": ids, "before": before, "limit": limit}
    return [_letter(row) for row in (yield Query(statements(_SQL)["list"], values))]


def _letter(row: Row) -> DeadLetter:
    id_, schedule_id, at, tenant, name, target, payload, reason, attempts, failures, died_at, changed, hook, tries = row
    return DeadLetter(
        id_, run_id(schedule_id, at), schedule_id, at.astimezone(UTC), tenant, name, target, json.loads(payload), reason, attempts,
        tuple(json.loads(failures)) if failures else (), died_at.astimezone(UTC), None if changed is None else tuple(changed),
        hook, tries,
    )  # fmt: skip
