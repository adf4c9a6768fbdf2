"""Long runs: a target that accepted a run (202) reports that it goes on, and how it ended.

The attempt is the token: only the attempt that goes on can be reported about, and each ends once. A report may overtake the
runner that is still writing the 202, or outlive it: it counts, and what the runner writes afterwards is discarded, for the
claim is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from bucketd.store.errors import Conflict, NotFound
from bucketd.store.model import RunStatus, run_id
from bucketd.store.operation import Operation, Query
from bucketd.store.retry import Policy, error_text
from bucketd.store.statements import statements

_SQL = "long_runs"


class Standing(NamedTuple):
    """A run as a report finds it. `within_s`: how soon its target has to report; None: it does not do so."""

    schedule_id: UUID
    scheduled_at: datetime
    status: RunStatus
    attempt: int
    is_held: bool  # by a runner, which calls the target or has not written its answer
    target_id: int
    wake_at: datetime | None
    failures: tuple[Mapping[str, Any], ...]
    within_s: int | None
    policy: Policy

    @property
    def id(self) -> str:
        return run_id(self.schedule_id, self.scheduled_at)


class Outcome(NamedTuple):
    """How an attempt ended. `error` None: well. `retry`: whether another attempt may heal it."""

    error: str | None = None
    retry: bool = True


class Refused(Conflict):
    """This attempt does not go on, so nothing can be reported about it. `run`: how it stands."""

    def __init__(self, run: Standing, attempt: int) -> None:
        super().__init__(_why_not(run, attempt))
        self.run = run


def find(schedule_id: UUID, at: datetime) -> Operation[Standing]:
    """The run of this key. Raises NotFound."""
    rows = yield Query(statements(_SQL)["find"], {"id": schedule_id, "at": at})
    if not rows:
        raise NotFound(
            f"expected the id of a run, got {run_id(schedule_id, at)!r}, which does not exist, or its day was dropped"
        )
    status, attempt, is_held, target_id, wake_at, failures, within_s, *policy = rows[0]
    return Standing(
        schedule_id, at, RunStatus(status), attempt, is_held, target_id, wake_at and wake_at.astimezone(UTC),
        tuple(json.loads(failures or "[]")), within_s, Policy(*policy),
    )  # fmt: skip


def heartbeat(run: Standing, attempt: int) -> Operation[datetime]:
    """The attempt goes on; when its end is expected from now on. Raises Refused."""
    if not _goes_on(run, attempt):
        raise Refused(run, attempt)
    rows = yield Query(statements(_SQL)["extend"], {**_key(run, attempt), "within_s": run.within_s})
    if not rows:
        raise Refused((yield from find(run.schedule_id, run.scheduled_at)), attempt)
    expected_by: datetime = rows[0][0]
    return expected_by.astimezone(UTC)


def complete(run: Standing, attempt: int, outcome: Outcome, draw: float) -> Operation[Standing]:
    """The attempt ended like this; how the run stands then. The same report again changes nothing. Raises Refused.

    `draw` in [0, 1) decides about the delay of the next attempt.
    """
    if _goes_on(run, attempt):
        rows = yield _write(run, attempt, outcome, draw)
        if rows:
            status, wake_at, *_ = rows[0]
            return run._replace(status=RunStatus(status), wake_at=wake_at and wake_at.astimezone(UTC))
        run = yield from find(run.schedule_id, run.scheduled_at)  # something ended it meanwhile: maybe this very report
    if not _is_repeated(run, attempt, outcome):
        raise Refused(run, attempt)
    return run


def _write(run: Standing, attempt: int, outcome: Outcome, draw: float) -> Query:
    if outcome.error is None:
        return Query(statements(_SQL)["succeed"], _key(run, attempt))
    delay_s = run.policy.next_s(attempt, draw) if outcome.retry else None
    reason = None if delay_s is not None else "attempts" if outcome.retry else "rejected"
    failed = {"error": error_text(outcome.error), "delay_s": delay_s, "reason": reason}
    return Query(statements(_SQL)["fail"], _key(run, attempt) | failed)


def _goes_on(run: Standing, attempt: int) -> bool:
    """Held by a runner it is a long run only if its target does such; held by nobody it was accepted as one."""
    takes_reports = not run.is_held or run.within_s is not None
    return run.status is RunStatus.RUNNING and run.attempt == attempt and takes_reports


def _is_repeated(run: Standing, attempt: int, outcome: Outcome) -> bool:
    if outcome.error is None:
        return run.status is RunStatus.SUCCEEDED and run.attempt == attempt
    error = error_text(outcome.error)
    return any(failure["attempt"] == attempt and failure["error"] == error for failure in run.failures)


def _why_not(run: Standing, attempt: int) -> str:
    if run.attempt != attempt:
        return f"expected a report about attempt {run.attempt}, got one about attempt {attempt}, which does not go on"
    if run.status is not RunStatus.RUNNING:
        return f"expected a report about an attempt that goes on; attempt {attempt} has ended, the run is {run.status}"
    return "expected a run that its target accepted; the target has no complete_within_s, and its answer alone counts"


def _key(run: Standing, attempt: int) -> dict[str, Any]:
    return {"id": run.schedule_id, "at": run.scheduled_at, "attempt": attempt}
