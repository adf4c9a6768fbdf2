"""Specs that could not be computed: written by the nodes that tried, read by people. The rest of the cluster goes on without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "quarantine"
SCHEDULES_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class FailedSpec:
    """A spec in quarantine: what it is, what failed and since when, and how many schedules have it (counted to 1,000)."""

    spec_id: int
    kind: str
    rule: str
    error: str
    failed_at: datetime
    schedules: int


async def ids(connection: AsyncConnection[Any]) -> list[int]:
    """Which specs are marked as failed."""
    return [row[0] for row in await (await connection.execute(statements(_SQL)["ids"])).fetchall()]


async def enter(connection: AsyncConnection[Any], errors: Mapping[int, str]) -> None:
    """Marks specs with their errors; one that is marked with the same error keeps its time."""
    parameters = {"specs": list(errors), "errors": list(errors.values())}
    await connection.execute(statements(_SQL)["enter"], parameters)


async def release(connection: AsyncConnection[Any], specs: Iterable[int]) -> None:
    """Takes the marks off specs that can be computed again."""
    await connection.execute(statements(_SQL)["release"], {"specs": list(specs)})


def failed(most: int) -> Operation[list[FailedSpec]]:
    """The specs that failed last, newest first, at most `most`."""
    rows = yield Query(statements(_SQL)["failed"], {"most": most, "bound": SCHEDULES_COUNTED})
    return [
        FailedSpec(spec_id, kind, rule, error, at.astimezone(UTC), schedules)
        for spec_id, kind, rule, error, at, schedules in rows
    ]
