"""`client.dead`: runs that failed for good, to be replayed or discarded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from bucketd.client import history
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.store import dead_letters
from bucketd.store.dead_letters import DeadLetter


class DeadLetters:
    """Dead letters by id; they outlive the history of runs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[DeadLetter]:
        """A page of dead letters, newest first; `limit` 1 to 1,000."""
        return self._session.read(lambda: history.list_dead(tenant, name, target, limit, cursor))

    def get(self, letter_id: int) -> DeadLetter:
        """The dead letter of this id. Raises NotFound."""
        return self._session.read(lambda: history.get_dead(letter_id))

    def count(
        self, *, tenant: str | None = None, name: str | None = None, target: str | None = None, bound: int = 100_000
    ) -> int:
        """How many there are; counts no further than `bound` (1 to 1,000,000)."""
        return self._session.read(lambda: history.count_dead(tenant, name, target, bound))

    def replay(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        all: bool = False,
        connection: psycopg.Connection[Any] | None = None,
    ) -> int:
        """Starts their runs again now, with the same run ids and the next attempt number; returns how many.

        Say which: ids, a filter, or all=True. A run whose day was dropped by retention, or whose schedule was deleted, cannot go
        back: for named ids that is a Conflict and nothing is changed; with a filter the others are replayed.

        Raises InvalidInput, NotFound (an id), Conflict.
        """
        letters = history.letters(ids, tenant, name, target, all)
        return self._session.write(lambda: dead_letters.replay(letters), connection, "wake", patient=True, undo=True)

    def discard(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        all: bool = False,
        connection: psycopg.Connection[Any] | None = None,
    ) -> int:
        """Deletes dead letters; returns how many. Their runs stay dead. Say which as for `replay`. Raises InvalidInput, NotFound."""
        letters = history.letters(ids, tenant, name, target, all)
        return self._session.write(lambda: dead_letters.discard(letters), connection, patient=True, undo=True)


class AsyncDeadLetters:
    """Dead letters by id; they outlive the history of runs."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(
        self,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[DeadLetter]:
        """A page of dead letters, newest first; `limit` 1 to 1,000."""
        return await self._session.read(lambda: history.list_dead(tenant, name, target, limit, cursor))

    async def get(self, letter_id: int) -> DeadLetter:
        """The dead letter of this id. Raises NotFound."""
        return await self._session.read(lambda: history.get_dead(letter_id))

    async def count(
        self, *, tenant: str | None = None, name: str | None = None, target: str | None = None, bound: int = 100_000
    ) -> int:
        """How many there are; counts no further than `bound` (1 to 1,000,000)."""
        return await self._session.read(lambda: history.count_dead(tenant, name, target, bound))

    async def replay(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        all: bool = False,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> int:
        """Starts their runs again now, with the same run ids and the next attempt number; returns how many.

        Say which: ids, a filter, or all=True. A run whose day was dropped by retention, or whose schedule was deleted, cannot go
        back: for named ids that is a Conflict and nothing is changed; with a filter the others are replayed.

        Raises InvalidInput, NotFound (an id), Conflict.
        """
        letters = history.letters(ids, tenant, name, target, all)
        return await self._session.write(
            lambda: dead_letters.replay(letters), connection, "wake", patient=True, undo=True
        )

    async def discard(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        tenant: str | None = None,
        name: str | None = None,
        target: str | None = None,
        all: bool = False,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> int:
        """Deletes dead letters; returns how many. Their runs stay dead. Say which as for `replay`. Raises InvalidInput, NotFound."""
        letters = history.letters(ids, tenant, name, target, all)
        return await self._session.write(lambda: dead_letters.discard(letters), connection, patient=True, undo=True)
