"""Dead letters: runs that failed for good, kept until somebody replays or discards them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store import audit
from bucketd.store.errors import Conflict, NotFound
from bucketd.store.model import run_id
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "dead_letters"
_STRETCH = 10_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A run that failed for good, with what it was called with. `target` is None if that was deleted since."""

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


class Filter(NamedTuple):
    """Which letters; None means any."""

    ids: Sequence[int] | None = None
    tenant: str | None = None
    name: str | None = None
    target: str | None = None


def list_before(letters: Filter, before: int | None, limit: int) -> Operation[list[DeadLetter]]:
    """At most `limit` letters, newest first, of ids below `before`."""
    rows = yield Query(statements(_SQL)["list"], {**letters._asdict(), "before": before, "limit": limit})
    return [_letter(row) for row in rows]


def get(letter_id: int) -> Operation[DeadLetter]:
    """The letter of this id. Raises NotFound."""
    found = yield from list_before(Filter(ids=[letter_id]), None, 1)
    if not found:
        raise NotFound(f"expected the id of a dead letter, got {letter_id}, which does not exist; see dead.list")
    return found[0]


def count(letters: Filter, bound: int) -> Operation[int]:
    """How many there are; counts no further than `bound`."""
    rows = yield Query(statements(_SQL)["count"], {**letters._asdict(), "bound": bound})
    return int(rows[0][0])


def replay(letters: Filter) -> Operation[int]:
    """Sends the runs back to be taken now, in one transaction of the caller's; how many.

    A letter stays if its run cannot go back. Raises Conflict, so that nothing is changed, if one of the named ids stays, or if
    all that a filter names stay; NotFound if a named id is missing.
    """
    looked_at: int = 0
    replayed: int = 0
    after: int = 0
    in_the_way: list[str] = []
    while True:
        rows = yield Query(statements(_SQL)["replay"], {**letters._asdict(), "after": after, "limit": _STRETCH})
        seen, back, last, reasons = rows[0]
        looked_at, replayed = looked_at + seen, replayed + back
        in_the_way += reasons
        if seen < _STRETCH:
            break
        after = last
    _check_all_there(letters, looked_at)
    if in_the_way and (letters.ids is not None or not replayed):
        raise Conflict(f"nothing was replayed: these dead letters cannot be: {', '.join(in_the_way[:5])}; discard them")
    yield from audit.note("replay", letters.tenant, letters.name or "", f"{replayed} dead letters")
    return replayed


def discard(letters: Filter) -> Operation[int]:
    """Deletes letters; how many. Raises NotFound if a named id is missing (then nothing is deleted)."""
    rows = yield Query(statements(_SQL)["discard"], letters._asdict())
    _check_all_there(letters, len(rows))
    yield from audit.note("discard", letters.tenant, letters.name or "", f"{len(rows)} dead letters")
    return len(rows)


def _check_all_there(letters: Filter, found: int) -> None:
    if letters.ids is not None and found < len(set(letters.ids)):
        raise NotFound(
            f"expected ids of {len(set(letters.ids))} dead letters, got {found} that exist; nothing was changed"
        )


def _letter(row: Row) -> DeadLetter:
    id_, schedule_id, at, tenant, name, target, payload, reason, attempts, failures, died_at = row
    return DeadLetter(
        id_, run_id(schedule_id, at), schedule_id, at.astimezone(UTC), tenant, name, target, json.loads(payload), reason, attempts,
        tuple(json.loads(failures)) if failures else (), died_at.astimezone(UTC),
    )  # fmt: skip
