"""Replaying and discarding dead letters: which are meant, and the steps in which they go.

A step is one transaction of the caller's. Whoever stops between two has done what they say, and the same again goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from bucketd.client import checks
from bucketd.errors import Conflict, InvalidInput, NotFound
from bucketd.store import audit, dead_letters
from bucketd.store.dead_letters import STRETCH, Filter, Replayed
from bucketd.store.operation import Operation

IDS_MAX = 10_000
RATE_MAX = 1_000_000.0
RATE_MIN = 0.001
T = TypeVar("T")


class Step(NamedTuple, Generic[T]):
    """What is done so far, and the letters that there still are to walk through: after an id, up to another."""

    done: T
    after: int
    last: int

    @property
    def ended(self) -> bool:
        """Whether nothing is left to walk through."""
        return self.after >= self.last


class Chosen:
    """The letters that are meant: named ids, in one step, all or nothing; or what fits a filter, in steps of STRETCH."""

    def __init__(self, ids: int | Iterable[int] | None, all: bool, letters: Filter) -> None:
        """Raises InvalidInput unless it is said which: by ids, by a filter, or by all=True."""
        filtered = any(part is not None for part in letters)
        if [ids is not None, filtered, bool(all)].count(True) != 1:
            raise InvalidInput(
                "expected either ids, or a filter (tenant, name, target, reason, labels, from_, to), or all=True",
                field="ids",
            )
        self.letters = letters
        listed = [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
        self.ids = None if ids is None else sorted({checks.integer(one, "ids", 1, 2**63 - 1) for one in listed})
        if len(listed) > IDS_MAX:
            raise InvalidInput(f"expected at most {IDS_MAX:,} ids, got {len(listed):,}; use a filter", field="ids")

    def last(self) -> Operation[int]:
        """Where the walk ends. What dies on the way lies behind it: else a target that fails at once were asked for ever."""
        if self.ids is None:
            return (yield from dead_letters.last())
        return self.ids[-1] if self.ids else 0

    def stretch(self, after: int, last: int) -> Operation[tuple[list[int], int]]:
        """The next ids, and after which id to go on."""
        if self.ids is not None:
            return self.ids, last
        found = yield from dead_letters.find(self.letters, after, last, STRETCH)
        return found, found[-1] if len(found) == STRETCH else last

    def check_all_there(self, seen: int) -> None:
        """Raises NotFound if some of the named ids were not seen."""
        if self.ids is not None and seen < len(self.ids):
            raise NotFound(f"expected ids of {len(self.ids)} dead letters, got {seen} that exist; nothing was changed")

    def note(self, verb: str, count: int) -> Operation[None]:
        """Notes in the audit log what a step did."""
        if count:
            yield from audit.note(verb, self.letters.tenant, self.letters.name or "", f"{count} dead letters")


class Replay:
    """A replay, checked."""

    def __init__(self, chosen: Chosen, rate_per_s: float | None, dry_run: bool) -> None:
        self._chosen = chosen
        rate = None if rate_per_s is None else checks.number(rate_per_s, "rate_per_s", RATE_MIN, RATE_MAX)
        self._apart_s = 1 / rate if rate else 0.0
        self._dry_run = checks.flag(dry_run, "dry_run")

    def begin(self) -> Operation[Step[Replayed]]:
        """What there is to walk through."""
        return Step(Replayed(), 0, (yield from self._chosen.last()))

    def go_on(self, step: Step[Replayed]) -> Operation[Step[Replayed]]:
        """The next step. Raises NotFound, Conflict: named ids that are not all there, or cannot all go back."""
        ids, after = yield from self._chosen.stretch(step.after, step.last)
        done, seen = yield from dead_letters.replay(ids, step.done, apart_s=self._apart_s, dry_run=self._dry_run)
        self._chosen.check_all_there(seen)
        if self._chosen.ids is not None and done.left:
            raise _refused(done)
        if not self._dry_run:
            yield from self._chosen.note("replay", done.replayed - step.done.replayed)
        return Step(done, after, step.last)

    def result(self, step: Step[Replayed]) -> Replayed:
        """What came of it. Raises Conflict if none of what the filter names can go back."""
        if step.done.left and not step.done.replayed and not self._dry_run:
            raise _refused(step.done)
        return step.done


class Discard:
    """A discard, checked. The steps count the letters."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen

    def begin(self) -> Operation[Step[int]]:
        """What there is to walk through."""
        return Step(0, 0, (yield from self._chosen.last()))

    def go_on(self, step: Step[int]) -> Operation[Step[int]]:
        """The next step. Raises NotFound: named ids that are not all there."""
        ids, after = yield from self._chosen.stretch(step.after, step.last)
        gone = yield from dead_letters.discard(ids)
        self._chosen.check_all_there(gone)
        yield from self._chosen.note("discard", gone)
        return Step(step.done + gone, after, step.last)


def _refused(done: Replayed) -> Conflict:
    return Conflict(f"nothing was replayed: these dead letters cannot be: {', '.join(done.in_the_way)}; discard them")
