"""`POST /runs/{run_id}/heartbeat` and `/complete`: what a target says of a run that it accepted with a 202.

Both take JSON, or nothing: `attempt` (or the header `Bucketd-Attempt`) is the attempt that the run was sent with. Complete takes
`result` (anything; it is not kept) or `error` (text: the attempt failed), and with an error `retry` (false: no other attempt can
heal it). A member that is not known is refused: a failure with a misspelt error would be a success.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, NoReturn
from uuid import UUID

from bucketd.api import signed
from bucketd.api.messages import Problem, Reply, Request
from bucketd.store import long_runs
from bucketd.store.errors import InvalidInput, NotFound
from bucketd.store.keyring import KeyRing
from bucketd.store.long_runs import Outcome, Refused, Standing
from bucketd.store.model import RunStatus, parse_run_id
from bucketd.store.operation import Operation

ATTEMPT_HEADER = "bucketd-attempt"
MOST_ATTEMPTS = 32_767
MEMBERS = {"heartbeat": {"attempt"}, "complete": {"attempt", "result", "error", "retry"}}


@dataclass(frozen=True, slots=True)
class Report:
    """A request that can be understood."""

    kind: str  # a key of MEMBERS
    schedule_id: UUID
    scheduled_at: datetime
    attempt: int
    outcome: Outcome
    webhook_id: str
    request: Request


def parse(kind: str, run: str, request: Request) -> Report:
    """What a request reports. Raises Problem. Pure."""
    try:
        schedule_id, at = parse_run_id(run)
    except InvalidInput as error:
        raise Problem(HTTPStatus.NOT_FOUND, str(error)) from None
    members = _members(request.body)
    unknown = sorted(members.keys() - MEMBERS[kind])
    if unknown:
        _malformed(f"expected no members but {', '.join(sorted(MEMBERS[kind]))}, got {', '.join(unknown)[:200]}")
    attempt = _attempt(members, request.headers)
    return Report(kind, schedule_id, at, attempt, _outcome(members), f"{kind}_{run}_{attempt}", request)


def answer(report: Report, ring: KeyRing, *, now_s: float, draw: float) -> Operation[Reply]:
    """Does what is reported. Raises Problem."""
    try:
        run = yield from long_runs.find(report.schedule_id, report.scheduled_at)
        keys = yield from signed.keys_of(run.target_id, ring)
        signed.check(keys, report.webhook_id, report.request.headers, report.request.body, now_s)
        if report.kind == "heartbeat":
            run = run._replace(wake_at=(yield from long_runs.heartbeat(run, report.attempt)))
        else:
            run = yield from long_runs.complete(run, report.attempt, report.outcome, draw)
    except NotFound as error:
        raise Problem(HTTPStatus.NOT_FOUND, str(error)) from None
    except Refused as error:
        run = error.run
        raise Problem(HTTPStatus.CONFLICT, str(error), run_status=run.status, expected_attempt=run.attempt) from None
    return Reply(HTTPStatus.OK, _shown(run, report.attempt))


def _shown(run: Standing, attempt: int) -> dict[str, object]:
    shown: dict[str, object] = {"run_id": run.id, "attempt": attempt, "status": run.status}
    if run.wake_at is not None:
        name = "expected_by" if run.status is RunStatus.RUNNING else "next_attempt_at"
        shown[name] = run.wake_at.isoformat().replace("+00:00", "Z")
    return shown


def _members(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        read = json.loads(body)
    except (ValueError, RecursionError) as error:
        _malformed(f"expected JSON: {str(error)[:200]}")
    if not isinstance(read, dict):
        _malformed("expected a JSON object")
    return read


def _attempt(members: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    said, stands = members.get("attempt"), headers.get(ATTEMPT_HEADER)
    if stands is not None:
        of_header = int(stands) if stands.isascii() and stands.isdigit() and len(stands) <= 5 else -1
        if said is not None and said != of_header:
            _malformed("expected the same attempt in the body and in the header Bucketd-Attempt, got two")
        said = of_header
    if type(said) is not int or not 1 <= said <= MOST_ATTEMPTS:
        _malformed("expected the attempt that the run was sent with, as a number, in `attempt` or Bucketd-Attempt")
    return said


def _outcome(members: Mapping[str, Any]) -> Outcome:
    error, retry = members.get("error"), members.get("retry", True)
    if not isinstance(retry, bool):
        _malformed("expected `retry` to be true or false")
    if error is None:
        return Outcome()
    if not isinstance(error, str) or not error:
        _malformed("expected `error` to be a text that says what went wrong")
    if members.get("result") is not None:
        _malformed("expected either `result` or `error`, got both")
    return Outcome(error, retry)


def _malformed(detail: str) -> NoReturn:
    raise Problem(HTTPStatus.BAD_REQUEST, detail)
