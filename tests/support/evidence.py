"""What a test collected: what was due, which rows there are, and which calls arrived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tests.support.cluster import Cluster

Key = tuple[str, str]  # tenant, name
Due = Mapping[Key, set[float]]  # nominal instants of each schedule, epoch seconds


@dataclass(frozen=True)
class Row:
    """A run as Postgres has it; instants in epoch seconds of the cluster."""

    key: Key
    at: float
    jitter_s: int
    status: str
    origin: str
    attempt: int
    missed: int
    reason: str | None
    started: float | None
    finished: float | None
    woken: bool  # it has a wake_at
    claimed: bool  # by a runner that is alive
    errors: tuple[int, ...]  # attempts that failed, as recorded


@dataclass(frozen=True)
class Call:
    """One run in one request, as the target saw it."""

    run_id: str
    key: Key
    at: float
    attempt: int
    arrived: float


@dataclass(frozen=True)
class Evidence:
    """All of it. `either_way`: instants that may have a row and need none (a pause, an edit under way)."""

    due: Due
    rows: Sequence[Row]
    calls: Sequence[Call]
    either_way: Due


_ROWS = """
select s.tenant, s.name, extract(epoch from r.scheduled_at)::float8, r.jitter_offset_s, r.status::text,
    r.origin::text, r.attempt, r.missed, r.reason,
    extract(epoch from r.started_at)::float8, extract(epoch from r.finished_at)::float8, r.wake_at is not null,
    coalesce(n.dead_at is null and n.heartbeat_at > bucketd.bucketd_now() - interval '4 s', false),
    coalesce(r.failures, '[]')
from bucketd.runs r
join bucketd.schedules s on s.id = r.schedule_id
left join bucketd.claims c on c.claim = r.claim
left join bucketd.runners n on n.runner_id = c.runner_id
order by r.scheduled_at, r.schedule_id"""


def collect(cluster: Cluster, due: Due, either_way: Due | None = None, *, tenant: str | None = None) -> Evidence:
    """Reads rows and calls as they stand now; with `tenant` only those of its schedules."""
    found = Evidence(due, rows(cluster), calls(cluster), either_way or {})
    if tenant is None:
        return found
    mine = [row for row in found.rows if row.key[0] == tenant]
    return replace(found, rows=mine, calls=[call for call in found.calls if call.key[0] == tenant])


def rows(cluster: Cluster) -> list[Row]:
    """All runs, by instant."""
    return [_row(*fields) for fields in cluster.sql(_ROWS)]


def calls(cluster: Cluster) -> list[Call]:
    """All calls, in order of arrival, on the cluster's clock."""
    return [
        _call(run, request.wall_s + cluster.offset_s)
        for request in list(cluster.target.requests)
        for run in request.runs
    ]


def _row(tenant: str, name: str, *fields: Any) -> Row:
    *plain, failures = fields
    values: tuple[Any, ...] = (*plain, tuple(failure["attempt"] for failure in failures))
    return Row((tenant, name), *values)


def _call(run: dict[str, Any], arrived: float) -> Call:
    at = datetime.fromisoformat(run["scheduled_at"]).timestamp()
    return Call(run["run_id"], (run["tenant"], run["schedule"]), at, run["attempt"], arrived)
