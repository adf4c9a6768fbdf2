"""Dead letters, from checked arguments to operations: which are meant, looking at them, and running one again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from bucketd.client import checks, cursors, upcoming
from bucketd.client.results import Page
from bucketd.client.timings import aware
from bucketd.errors import Conflict, InvalidInput, NotFound
from bucketd.store import dead_letters
from bucketd.store.dead_letters import STRETCH, DeadLetter, Filter
from bucketd.store.operation import Operation

COUNT_MAX = 1_000_000


class Which(TypedDict, total=False):
    """Which dead letters: of a tenant, of schedules of this name, of a target, with this reason, whose schedules have all of these
    labels now (a deleted one has none), that died from from_ on and before to.
    """

    tenant: str | None
    name: str | None
    target: str | None
    reason: str | None
    labels: Mapping[str, str] | None
    from_: datetime | None
    to: datetime | None


def chosen(
    tenant: str | None = None,
    name: str | None = None,
    target: str | None = None,
    reason: str | None = None,
    labels: Mapping[str, str] | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
) -> Filter:
    """A filter of what `Which` says. Raises InvalidInput."""
    texts = {"tenant": tenant, "name": name, "target": target, "reason": reason}
    checked = {field: None if text is None else checks.name(text, field) for field, text in texts.items()}
    died_from = None if from_ is None else aware(from_, "from_")
    died_until = None if to is None else aware(to, "to")
    if died_from and died_until and died_from >= died_until:
        raise InvalidInput(
            f"expected from_ before to, got {died_from.isoformat()} and {died_until.isoformat()}", field="from_"
        )
    return Filter(
        **checked, labels=checks.labels(labels) if labels else None, died_from=died_from, died_until=died_until
    )


def page(letters: Filter, limit: int, cursor: str | None) -> Operation[Page[DeadLetter]]:
    """A page of dead letters, newest first. Raises InvalidInput."""
    key = cursors.decode("dead letters", cursor, (int,))
    found = yield from dead_letters.list_before(letters, int(key[0]) if key else None, checks.limit(limit) + 1)
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.encode("dead letters", found[limit - 1].id) if more else None)


def get(letter_id: int) -> Operation[DeadLetter]:
    """The dead letter of this id. Raises InvalidInput, NotFound."""
    return (yield from dead_letters.get(checks.integer(letter_id, "letter_id", 1, 2**63 - 1)))


def count(letters: Filter, bound: int) -> Operation[int]:
    """Dead letters that fit, at most `bound`. Raises InvalidInput."""
    checks.integer(bound, "bound", 1, COUNT_MAX)
    last = yield from dead_letters.last()
    counted = after = 0
    while counted < bound:
        found = yield from dead_letters.find(letters, after, last, min(STRETCH, bound - counted))
        counted += len(found)
        if len(found) < STRETCH:
            break
        after = found[-1]
    return counted


def run_again(letter_id: int, discard: bool) -> Operation[str]:
    """A new run of the letter's schedule; its run id. Raises InvalidInput, NotFound, Conflict (the schedule is gone)."""
    checks.flag(discard, "discard")
    letter = yield from get(letter_id)
    if letter.changed is None:
        raise Conflict(
            f"dead letter {letter_id} cannot be run again: its schedule {letter.name!r} of {letter.tenant!r} was deleted"
        )
    run = yield from upcoming.trigger(letter.tenant, letter.name)
    if discard and not (yield from dead_letters.discard([letter.id])):
        raise NotFound(f"dead letter {letter_id} was replayed or discarded meanwhile; nothing was changed")
    return run
