"""Step 5 of 5, the statements: outcomes of attempts are written where attempt and claim are still the writer's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg

from bucketd.store.arrays import Instants, Int2s, Int8s, Uuids, int8s
from bucketd.store.retry import Own
from bucketd.store.statements import statements

# Reasons of runs that wait for a place; both stand in indexes.
TARGET_BUSY, TENANT_BUSY = "target_busy", "tenant_busy"
# Such a run is looked at after this, up to twice as long, even if every runner should have overlooked it.
BUSY_S = 3_600.0


class Keys(NamedTuple):
    """Columns of the runs of one statement: what proves that the writer holds them."""

    ids: list[bytes]
    ats: list[bytes]  # elements of arrays.Instants
    attempts: list[bytes]
    claims: list[bytes]

    def parameters(self, spent: Sequence[int]) -> dict[str, Any]:
        return {
            "ids": Uuids(self.ids),
            "ats": Instants(self.ats),
            "attempts": Int2s(self.attempts),
            "claims": Int8s(self.claims),
            "spent": int8s(spent),
        }


class Failed(NamedTuple):
    """How one attempt failed. `delay_s` None: it was the last one, `reason` says why."""

    http_status: int | None
    error: str
    delay_s: float | None
    reason: str | None


async def write_succeeded(
    connection: psycopg.AsyncConnection[Any], keys: Keys, statuses: Sequence[bytes], spent: Sequence[int]
) -> int:
    """Ends these runs well, with their HTTP statuses (elements of Int2s), and deletes the claims `spent`.

    How many were still the writer's. Repeating is harmless.
    """
    parameters = keys.parameters(spent) | {"statuses": Int2s(statuses)}
    return await _count(connection, "succeeded", parameters)


async def own_retries(connection: psycopg.AsyncConnection[Any], ids: Iterable[bytes]) -> dict[bytes, Own]:
    """What these schedules say themselves about retries, by id; most say nothing and are left out."""
    cursor = await connection.execute(statements("results")["own_retries"], {"ids": Uuids(list(set(ids)))})
    return {id_.bytes: Own(*own) for id_, *own in await cursor.fetchall()}


async def write_failed(
    connection: psycopg.AsyncConnection[Any], keys: Keys, failures: Sequence[Failed], spent: Sequence[int]
) -> int:
    """Ends these attempts; retries wake after their delay, dead runs leave a dead letter. Answers as `write_succeeded`."""
    columns = zip(*failures, strict=True) if failures else ((),) * 4  # none: only spent claims are to go
    http_statuses, errors, delays, reasons = map(list, columns)
    parameters = keys.parameters(spent) | {
        "statuses": http_statuses,
        "delays": delays,
        "reasons": reasons,
        "errors": errors,
    }
    return await _count(connection, "failed", parameters)


async def write_accepted(
    connection: psycopg.AsyncConnection[Any], keys: Keys, within_s: Sequence[int], spent: Sequence[int]
) -> int:
    """These runs go on at their targets, which are to report their end within so many seconds. Answers as `write_succeeded`."""
    return await _count(connection, "accepted", keys.parameters(spent) | {"within": list(within_s)})


async def give_back(
    connection: psycopg.AsyncConnection[Any], keys: Keys, reasons: Sequence[None], spent: Sequence[int]
) -> int:
    """Undoes claims whose calls were never made; there is nothing more to say of them. Answers as `write_succeeded`."""
    return await _count(connection, "give_back", keys.parameters(spent))


async def defer(
    connection: psycopg.AsyncConnection[Any], keys: Keys, reasons: Sequence[str], spent: Sequence[int]
) -> int:
    """Undoes claims for which there is no place now; each run waits for one, its reason (TARGET_BUSY, TENANT_BUSY) says where.

    Answers as `write_succeeded`.
    """
    parameters = keys.parameters(spent) | {"reasons": list(reasons), "within_s": BUSY_S}
    return await _count(connection, "defer", parameters)


async def _count(connection: psycopg.AsyncConnection[Any], statement: str, parameters: dict[str, Any]) -> int:
    cursor = await connection.execute(statements("results")[statement], parameters)
    row = await cursor.fetchone()
    return int(row[0]) if row else 0
