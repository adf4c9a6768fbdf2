"""What the doctor asks Postgres. Reads only, every statement is short; any of them may raise for a role that lacks a right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "doctor"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who this role is to the tables of runs: `member` of their `owner`, and whether it may create in their schema."""

    role: str
    owner: str
    member: bool
    may_create: bool


@dataclass(frozen=True, slots=True)
class Days:
    """Days of runs are made up to `through`, `ahead_s` seconds from now; `missing` are those (YYYY-MM-DD) that are not there."""

    through: datetime
    ahead_s: float
    missing: tuple[str, ...]


def clock() -> Operation[tuple[float, bool]]:
    """Postgres's clock in epoch seconds, and whether the cluster's is the same; only tests shift that one."""
    rows = yield Query(statements(_SQL)["clock"])
    now_s, same = rows[0]
    return now_s, same


def migrations() -> Operation[list[str]]:
    """Names of the applied migrations. Raises psycopg's UndefinedTable or InvalidSchemaName if none was, InsufficientPrivilege."""
    rows = yield Query(statements(_SQL)["migrations"])
    return [row[0] for row in rows]


def closed_tables() -> Operation[list[str]]:
    """Tables that this role may not both read and write."""
    rows = yield Query(statements(_SQL)["rights"])
    return [row[0] for row in rows]


def ownership() -> Operation[Ownership]:
    """Whether this role can make and drop days of runs."""
    rows = yield Query(statements(_SQL)["ownership"])
    return Ownership(*rows[0])


def days() -> Operation[Days]:
    """Which days of runs there are."""
    rows = yield Query(statements(_SQL)["days"])
    through, ahead_s, missing = rows[0]
    return Days(through.astimezone(UTC), ahead_s, tuple(missing))


def settled_lag_s() -> Operation[float]:
    """Seconds that the partition furthest behind is settled behind now."""
    rows = yield Query(statements(_SQL)["settled"])
    return float(rows[0][0] or 0)


def overdue(bound: int) -> Operation[int]:
    """Live runs that nobody took for over a minute; counts no further than `bound`."""
    rows = yield Query(statements(_SQL)["overdue"], {"bound": bound})
    return int(rows[0][0])


def runners_alive(dead_after_s: float) -> Operation[int]:
    """Runners with a heartbeat in the last so many seconds."""
    rows = yield Query(statements(_SQL)["runners"], {"dead_after_s": dead_after_s})
    return int(rows[0][0])
