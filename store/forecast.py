"""What will be due: schedules counted by what they have in common, in Postgres, a stretch of pages at a time.

A stretch is short enough for the usual statement time-out however many schedules there are, and nobody waits for a lock.
Each is read as of its own moment: a schedule that is written meanwhile may be missed, or met twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "forecast"
LONGEST_JITTER_S = 3_600
_FEW = 50_000  # schedules of one tenant that are found by its index in one go
_LAST_PAGE = 4_294_967_294


@dataclass(frozen=True, slots=True)
class Scope:
    """Which schedules are meant; None: any. `labels` is JSON text."""

    tenant: str | None = None
    target_id: int | None = None
    labels: str | None = None


class Stretch(NamedTuple):
    """Pages of the table of schedules, from `first` to before `last`, as tuple ids."""

    first: str
    last: str


class Extent(NamedTuple):
    """How much is to be read: the table's pages, or the `few` schedules of one tenant, which its index finds in one go."""

    pages: int
    few: bool

    def stretch(self, first: int, count: int) -> Stretch:
        """Some pages; the last ones with those that are added meanwhile."""
        return Stretch(f"({first},0)", f"({first + count if first + count < self.pages else _LAST_PAGE},0)")


class ForecastSpec(NamedTuple):
    """A rule, and the largest jitter of any schedule that has it."""

    spec_id: int
    rule: str
    max_jitter_s: int


class AskedSpec(NamedTuple):
    """How a spec fires in a window. A cron has a pattern (a number of the caller's) and its fires; an interval has `every_s` and, in
    seconds from the window's start, from when until when its nominal instants count; a one-shot has neither."""

    spec_id: int
    pattern: int | None
    fires: int
    every_s: int | None
    from_s: int
    until_s: int


class AskedMinute(NamedTuple):
    """A minute in which a spec may be due, epoch seconds: a cron's nominal instant `at_s`, or as in AskedSpec."""

    spec_id: int
    peak: int
    minute_s: int
    at_s: int | None
    every_s: int | None
    from_s: int
    until_s: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of one kind as arrays in Postgres's text, made once for the many statements that they go into."""

    columns: Mapping[str, str]

    @classmethod
    def of(cls, kind: type[AskedSpec] | type[AskedMinute], rows: Iterable[AskedSpec | AskedMinute]) -> Asked:
        """The columns of `rows`, which are all of this kind."""
        columns = list(zip(*rows, strict=True)) or [()] * len(kind._fields)
        texts = ("{" + ",".join("null" if v is None else str(v) for v in column) + "}" for column in columns)
        return cls(dict(zip(kind._fields, texts, strict=True)))


class Group(NamedTuple):
    """What schedules of one count have in common; see the statement. `part`: the tenant, target or partition, if asked for."""

    part: str | None
    pattern: int | None
    every_s: int | None
    a: int
    b: int
    c: int | None


class Member(NamedTuple):
    """A schedule at a peak; `from_s` and `until_s` bound its nominal instants, epoch seconds."""

    id: UUID
    spec_id: int
    due_phase: int
    jitter_offset_s: int
    from_s: float
    until_s: float | None


def extent(scope: Scope) -> Operation[Extent]:
    """How much is to be read for this scope."""
    rows = yield Query(statements(_SQL)["extent"], {"tenant": scope.tenant, "bound": _FEW})
    pages, of_tenant = rows[0]
    few = scope.tenant is not None and of_tenant < _FEW
    return Extent(1 if few else max(1, pages), few)


def specs(tenant: str | None) -> Operation[list[ForecastSpec]]:
    """All specs; or those of one tenant of few schedules."""
    rows = yield Query(statements(_SQL)["specs"], {"tenant": tenant})
    return [ForecastSpec(*row) for row in rows]


def groups(
    scope: Scope,
    stretch: Stretch,
    asked: Asked,
    start_s: int,
    minutes: int,
    unit_s: int,
    by: str = "",
    dims: Sequence[str] | None = None,
) -> Operation[tuple[dict[Group, int], dict[str, int]]]:
    """Schedules of a stretch by what their fires in the window have in common; and fires by tenant, target or partition.

    unit_s: 60 or 1, how fine the groups are. dims: only schedules of these tenants (..), and groups of each apart.
    """
    start = datetime.fromtimestamp(start_s, UTC)
    times = {
        "start_s": start_s, "length_s": minutes * 60, "unit_s": unit_s, "start": start,
        "early": start - timedelta(seconds=LONGEST_JITTER_S), "end": start + timedelta(minutes=minutes),
    }  # fmt: skip
    wanted = {"by": by, "dims": None if dims is None else list(dims)}
    rows = yield Query(statements(_SQL)["groups"], {**_where(scope, stretch), **asked.columns, **times, **wanted})
    found = {Group(*row[1:7]): row[8] for row in rows if row[0]}
    return found, {row[7]: row[9] for row in rows if not row[0] and row[7] is not None}


class PeakCounts(NamedTuple):
    """Fires of a minute by second, by spec, by tenant and by target."""

    seconds: dict[int, int]
    specs: dict[int, int]
    tenants: dict[str, int]
    targets: dict[int, int]


def peaks(scope: Scope, stretch: Stretch, asked: Asked) -> Operation[dict[int, PeakCounts]]:
    """What of a stretch is due in the asked minutes, by the number of the peak."""
    rows = yield Query(statements(_SQL)["peaks"], {**_where(scope, stretch), **asked.columns})
    found: dict[int, PeakCounts] = {}
    for row in rows:
        kind = row[:4].index(0)
        peak = found.get(row[4]) or found.setdefault(row[4], PeakCounts({}, {}, {}, {}))
        counts: dict[Any, int] = peak[kind]
        counts[row[5 + kind]] = row[9]
    return found


def members(scope: Scope, stretch: Stretch, asked: Asked) -> Operation[list[Member]]:
    """The schedules of a stretch that are due in the one minute asked for; one of more excluded dates may come twice."""
    rows = yield Query(statements(_SQL)["members"], {**_where(scope, stretch), **asked.columns})
    return [Member(*row) for row in rows]


def expressions(spec_ids: Sequence[int]) -> Operation[dict[int, tuple[str, str]]]:
    """(rule, a schedule's expression as typed) by spec."""
    rows = yield Query(statements(_SQL)["expressions"], {"specs": list(spec_ids)})
    return {spec_id: (rule, expression) for spec_id, rule, expression in rows}


def target_names(ids: Sequence[int]) -> Operation[dict[int, str]]:
    """Names of targets by id."""
    rows = yield Query(statements(_SQL)["target_names"], {"ids": list(ids)})
    return dict(rows)


def _where(scope: Scope, stretch: Stretch) -> dict[str, Any]:
    return {**stretch._asdict(), "tenant": scope.tenant, "target_id": scope.target_id, "labels": scope.labels}
