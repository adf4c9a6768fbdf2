"""Collects what a play left: rows from Postgres, calls from the target. See tests/support/evidence.py for their shape."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.chaos.journal import Journal
from tests.chaos.oracle import evidence_key
from tests.chaos.stage import Stage
from tests.chaos.workload import SIGNED
from tests.support.evidence import Call, Key, Row
from tests.support.target import Request

_ROWS = """
select encode(uuid_send(r.schedule_id), 'hex'), extract(epoch from r.scheduled_at)::float8, r.jitter_offset_s, r.status::text,
    r.origin::text, r.attempt, r.missed, r.reason, extract(epoch from r.started_at)::float8,
    extract(epoch from r.finished_at)::float8, r.wake_at is not null,
    n.runner_id is not null and n.dead_at is null, coalesce(r.failures, '[]')
from bucketd.runs r
left join bucketd.claims c on c.claim = r.claim
left join bucketd.runners n on n.runner_id = c.runner_id
where r.scheduled_at >= to_timestamp(%s)
order by r.scheduled_at, r.schedule_id"""


async def rows(stage: Stage, journal: Journal, since_s: float) -> list[Row]:
    """All runs since then, by instant; one whose schedule nobody put has `?` for a name."""
    names = {life.history.id.hex: evidence_key(life) for life in journal.all()}
    return [_row(names.get(id, ("?", id)), *fields) for id, *fields in await stage.sql(_ROWS, since_s)]


def calls(stage: Stage) -> list[Call]:
    """All calls, in order of arrival, on the cluster's clock."""
    return [
        _call(run, request.wall_s + stage.offset_s) for request in list(stage.target.requests) for run in request.runs
    ]


def mistaken(stage: Stage) -> Iterator[str]:
    """I11: each call has the URL, the body and the secret of its own schedule and target, and the headers of its run."""
    for request in list(stage.target.requests):
        path = request.path.strip("/")
        if request.headers.get("x-target") != path:
            yield f"I11 headers of {request.headers.get('x-target')} sent to {path}"
        if path in SIGNED and not signed(request, SIGNED[path]):
            yield f"I11 signature of {request.headers.get('webhook-id')} is not that of {path}"
        for run in request.runs:
            if run["payload"] != {"whose": f"{run['tenant']}/{run['schedule']}"}:
                yield f"I11 {run['run_id']} of {run['tenant']}/{run['schedule']} came with {run['payload']}"


def signed(request: Request, key: bytes) -> bool:
    """By Standard Webhooks, computed once more."""
    head = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    digest = base64.b64encode(hmac.digest(key, head + request.raw, hashlib.sha256)).decode()
    return f"v1,{digest}" in request.headers.get("webhook-signature", "").split(" ")


def _row(key: Key, *fields: Any) -> Row:
    *plain, failures = fields
    values: tuple[Any, ...] = (*plain, tuple(failure["attempt"] for failure in failures))
    return Row(key, *values)


def _call(run: dict[str, Any], arrived: float) -> Call:
    at = datetime.fromisoformat(run["scheduled_at"]).timestamp()
    key = (f"{run['tenant']}/{run['schedule']}", run["run_id"].rpartition("-")[2])
    return Call(run["run_id"], key, at, run["attempt"], arrived)
