"""`client.dead`: runs that failed for good, to be looked at, replayed, run again, or discarded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Unpack

import psycopg

from bucketd.client import letters
from bucketd.client.letters import Which
from bucketd.client.replaying import Chosen, Discard, Replay
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store.dead_letters import DeadLetter, Replayed


class DeadLetters:
    """Dead letters by id; they outlive the history of runs. Filters (`which`) are those of `letters.Which`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, *, limit: int = 100, cursor: str | None = None, **which: Unpack[Which]) -> Page[DeadLetter]:
        """A page of dead letters that fit, newest first; `limit` 1 to 1,000. Raises InvalidInput."""
        found = letters.chosen(**which)
        return self._session.read(lambda: letters.page(found, limit, cursor))

    def get(self, letter_id: int) -> DeadLetter:
        """The dead letter of this id. Raises NotFound."""
        return self._session.read(lambda: letters.get(letter_id))

    def count(self, *, bound: int = 100_000, **which: Unpack[Which]) -> int:
        """How many fit; counts no further than `bound` (1 to 1,000,000)."""
        found = letters.chosen(**which)
        return self._session.read(lambda: letters.count(found, bound))

    def replay(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        rate_per_s: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.Connection[Any] | None = None,
        **which: Unpack[Which],
    ) -> Replayed:
        """The same runs go on: same run ids, next attempt numbers, one more attempt each. For work that is still to be done: a receiver
        that saw the id before knows it again. `run_again` makes new runs.

        They are called with payload and target of their schedules as these are then: correct them first. The letters go. Say which:
        ids (at most 10,000), a filter, or all=True. A run whose day was dropped by retention, or whose schedule was deleted, cannot go
        back: for named ids that is a Conflict and nothing is changed; with a filter the others are replayed.

        rate_per_s: their starts are spread at this rate, by times that stand in their rows: nobody has to stay for it. dry_run: only
        judges and counts. With a filter it goes by steps of some thousands, a transaction each: safe to interrupt, and the same again
        goes on with the rest (its starts begin now, so a rate counts for each call of its own). progress(done): called after each step
        with the letters looked at so far. connection: everything in your transaction.

        Raises InvalidInput, NotFound (an id), Conflict (also: none of what a filter names can go back).
        """
        replay = Replay(Chosen(ids, all, letters.chosen(**which)), rate_per_s, dry_run)
        step = self._session.write(replay.begin, connection)
        while not step.ended:
            step = self._session.write(partial(replay.go_on, step), connection, "wake", patient=True, undo=True)
            if progress:
                progress(step.done.replayed + step.done.left)
        return replay.result(step)

    def run_again(
        self, letter_id: int, *, discard: bool = False, connection: psycopg.Connection[Any] | None = None
    ) -> str:
        """A new run of the letter's schedule, now: a new run id, attempt 1, origin `trigger`; returns the id. For work that is to be done
        anew even by a receiver that knows the old id; `replay` lets the old run go on.

        It is called with payload and target of the schedule as they are now, not with the letter's. The letter stays, unless discard.
        Raises NotFound, Conflict (the schedule was deleted).
        """
        return self._session.write(lambda: letters.run_again(letter_id, discard), connection, "wake", undo=True)

    def discard(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.Connection[Any] | None = None,
        **which: Unpack[Which],
    ) -> int:
        """Deletes dead letters; returns how many. Their runs stay dead, and hooks that have not heard of them will not.

        Say which, as for `replay`; it goes by steps in the same way. Raises InvalidInput, NotFound (an id: nothing is changed).
        """
        discard = Discard(Chosen(ids, all, letters.chosen(**which)))
        step = self._session.write(discard.begin, connection)
        while not step.ended:
            step = self._session.write(partial(discard.go_on, step), connection, patient=True, undo=True)
            if progress:
                progress(step.done)
        return step.done


class AsyncDeadLetters:
    """Dead letters by id; they outlive the history of runs. Filters (`which`) are those of `letters.Which`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(self, *, limit: int = 100, cursor: str | None = None, **which: Unpack[Which]) -> Page[DeadLetter]:
        """A page of dead letters that fit, newest first; `limit` 1 to 1,000. Raises InvalidInput."""
        found = letters.chosen(**which)
        return await self._session.read(lambda: letters.page(found, limit, cursor))

    async def get(self, letter_id: int) -> DeadLetter:
        """The dead letter of this id. Raises NotFound."""
        return await self._session.read(lambda: letters.get(letter_id))

    async def count(self, *, bound: int = 100_000, **which: Unpack[Which]) -> int:
        """How many fit; counts no further than `bound` (1 to 1,000,000)."""
        found = letters.chosen(**which)
        return await self._session.read(lambda: letters.count(found, bound))

    async def replay(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        rate_per_s: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
        **which: Unpack[Which],
    ) -> Replayed:
        """The same runs go on: same run ids, next attempt numbers, one more attempt each. For work that is still to be done: a receiver
        that saw the id before knows it again. `run_again` makes new runs.

        They are called with payload and target of their schedules as these are then: correct them first. The letters go. Say which:
        ids (at most 10,000), a filter, or all=True. A run whose day was dropped by retention, or whose schedule was deleted, cannot go
        back: for named ids that is a Conflict and nothing is changed; with a filter the others are replayed.

        rate_per_s: their starts are spread at this rate, by times that stand in their rows: nobody has to stay for it. dry_run: only
        judges and counts. With a filter it goes by steps of some thousands, a transaction each: safe to interrupt, and the same again
        goes on with the rest (its starts begin now, so a rate counts for each call of its own). progress(done): called after each step
        with the letters looked at so far. connection: everything in your transaction.

        Raises InvalidInput, NotFound (an id), Conflict (also: none of what a filter names can go back).
        """
        replay = Replay(Chosen(ids, all, letters.chosen(**which)), rate_per_s, dry_run)
        step = await self._session.write(replay.begin, connection)
        while not step.ended:
            step = await self._session.write(partial(replay.go_on, step), connection, "wake", patient=True, undo=True)
            if progress:
                progress(step.done.replayed + step.done.left)
        return replay.result(step)

    async def run_again(
        self, letter_id: int, *, discard: bool = False, connection: psycopg.AsyncConnection[Any] | None = None
    ) -> str:
        """A new run of the letter's schedule, now: a new run id, attempt 1, origin `trigger`; returns the id. For work that is to be done
        anew even by a receiver that knows the old id; `replay` lets the old run go on.

        It is called with payload and target of the schedule as they are now, not with the letter's. The letter stays, unless discard.
        Raises NotFound, Conflict (the schedule was deleted).
        """
        return await self._session.write(lambda: letters.run_again(letter_id, discard), connection, "wake", undo=True)

    async def discard(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
        **which: Unpack[Which],
    ) -> int:
        """Deletes dead letters; returns how many. Their runs stay dead, and hooks that have not heard of them will not.

        Say which, as for `replay`; it goes by steps in the same way. Raises InvalidInput, NotFound (an id: nothing is changed).
        """
        discard = Discard(Chosen(ids, all, letters.chosen(**which)))
        step = await self._session.write(discard.begin, connection)
        while not step.ended:
            step = await self._session.write(partial(discard.go_on, step), connection, patient=True, undo=True)
            if progress:
                progress(step.done)
        return step.done
