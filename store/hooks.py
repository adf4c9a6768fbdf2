"""Hooks of targets: who is due to hear of a run that died.

The dead letter is the outbox: `hook_at` is set by whoever writes it, in its transaction, and by nobody's memory. So a hook hears of
each at least once, or is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from bucketd.store.model import run_id
from bucketd.store.statements import statements

_SQL = "hooks"
DROPPED = 1_000  # letters a statement


class Due(NamedTuple):
    """A target with something to tell. `url` None: it has no hook any more. `revision` None: it is gone itself."""

    target_id: int
    revision: int | None
    url: str | None


@dataclass(frozen=True, slots=True)
class Death:
    """What a hook is told of one dead letter, and which try it is. Never the payload: it may be secret."""

    letter_id: int
    tries: int
    target_id: int
    run_id: str
    scheduled_at: datetime
    tenant: str
    name: str
    reason: str
    attempts: int
    last_error: str
    died_at: datetime


async def due(connection: psycopg.AsyncConnection[Any], after: int, most: int) -> list[Due]:
    """At most so many targets whose hooks are due, in order of id, behind one."""
    cursor = await connection.execute(statements(_SQL)["due"], {"after": after, "most": most})
    return [Due(*row) for row in await cursor.fetchall()]


async def take(connection: psycopg.AsyncConnection[Any], places: Mapping[int, int], *, lease_s: float) -> list[Death]:
    """Takes what is due, of each target at most so many. They are the taker's for `lease_s`."""
    values = {"targets": list(places), "places": list(places.values()), "lease_s": lease_s}
    cursor = await connection.execute(statements(_SQL)["take"], values)
    return [
        Death(
            letter, tries, target, run_id(schedule_id, at), at.astimezone(UTC), tenant, name, reason, attempts, error,
            died_at.astimezone(UTC),
        )
        for letter, tries, target, schedule_id, at, tenant, name, reason, attempts, error, died_at in await cursor.fetchall()
    ]  # fmt: skip


async def told(connection: psycopg.AsyncConnection[Any], death: Death) -> None:
    """The hook has heard of it."""
    await connection.execute(statements(_SQL)["told"], {"letter": death.letter_id, "tries": death.tries})


async def failed(connection: psycopg.AsyncConnection[Any], death: Death, delay_s: float | None) -> None:
    """The hook is told again after so many seconds; None: it is given up."""
    values = {"letter": death.letter_id, "tries": death.tries, "delay_s": delay_s}
    await connection.execute(statements(_SQL)["failed"], values)


async def drop(connection: psycopg.AsyncConnection[Any], target_ids: Sequence[int]) -> None:
    """Forgets what nobody is to hear any more, a part of it."""
    await connection.execute(statements(_SQL)["drop"], {"targets": list(target_ids), "most": DROPPED})
