"""Runs, from checked arguments to operations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from bucketd.client import checks, cursors
from bucketd.client.results import Page
from bucketd.client.timings import aware
from bucketd.errors import InvalidInput
from bucketd.store import audit, history, schedules, targets
from bucketd.store.history import Run
from bucketd.store.model import RunStatus, epoch_us, instant, parse_run_id
from bucketd.store.operation import Operation

DEFAULT_SPAN = timedelta(hours=24)
# Statuses whose rows all stand in the partial index on wake_at.
WAITING = frozenset({RunStatus.RETRYING, RunStatus.DEFERRED, RunStatus.WAITING, RunStatus.HELD})
# A page looks at this many runs at most: about a second. A rare run further back is on a later page.
_STRETCH = 25_000
_STRETCHES = 20


def list_runs(
    name: str | None,
    tenant: str | None,
    target: str | None,
    status: str | Iterable[str] | None,
    from_: datetime | None,
    to: datetime | None,
    limit: int,
    cursor: str | None,
) -> Operation[Page[Run]]:
    """A page of runs, newest first."""
    checks.limit(limit)
    statuses = _statuses(status)
    key = cursors.decode("runs", cursor, (int, str, int, int))
    from_at = None if from_ is None else aware(from_, "from_")
    until_at = None if to is None else aware(to, "to")
    only_waiting = statuses is not None and WAITING.issuperset(statuses)
    if key:  # the cursor carries the range, so that "the last 24 hours" does not move from page to page
        from_at, until_at = (None if bound < 0 else instant(int(bound)) for bound in (int(key[2]), int(key[3])))
    elif not only_waiting:
        now = (yield from schedules.days()).now
        from_at = from_at or (until_at or now) - DEFAULT_SPAN
        until_at = until_at or now + timedelta(days=366)  # what a user skipped lies ahead
    if from_at and until_at and from_at >= until_at:
        raise InvalidInput(
            f"expected from_ before to, got {from_at.isoformat()} and {until_at.isoformat()}", field="from_"
        )
    runs = yield from _filter(name, tenant, target, statuses, from_at, until_at)
    if runs is None:
        return Page(())
    after = history.Key(instant(int(key[0])), UUID(str(key[1]))) if key else None
    if only_waiting:
        found = yield from history.waiting(runs, after, limit + 1)
        more = len(found) > limit
        found, end = found[:limit], _key(found[limit - 1]) if more else None
    else:
        found, end = yield from _scan(runs, after, limit)
    return Page(tuple(found), end and _cursor(end, from_at, until_at))


def get_run(run_id: str) -> Operation[Run]:
    """The run of this id. Raises InvalidInput, NotFound."""
    return (yield from history.get(*parse_run_id(checks.name(run_id, "run_id"))))


def cancel_run(run_id: str) -> Operation[Run]:
    """Cancels an unfinished run. Raises InvalidInput, NotFound, Conflict."""
    run = yield from history.cancel(*parse_run_id(checks.name(run_id, "run_id")))
    yield from audit.note("cancel", run.tenant, run.name or "", run.id)
    return run


def _scan(
    runs: history.Filter, after: history.Key | None, limit: int
) -> Operation[tuple[list[Run], history.Key | None]]:
    found: list[Run] = []
    for _ in range(_STRETCHES):
        some, end = yield from history.scan(runs, after, max(_STRETCH, limit), limit - len(found) + 1)
        found += some
        if len(found) > limit:
            return found[:limit], _key(found[limit - 1])
        if end is None:
            return found, None
        after = end
    return found, after


def _filter(
    name: str | None,
    tenant: str | None,
    target: str | None,
    statuses: list[str] | None,
    from_at: datetime | None,
    until_at: datetime | None,
) -> Operation[history.Filter | None]:
    """None: nothing can fit, since there is no such schedule or target."""
    ids = None if name is None else (yield from history.schedule_ids(tenant, checks.name(name, "name")))
    target_id = None
    if target is not None:
        target_id = (yield from targets.ids([checks.name(target, "target")])).get(target)
    if ids == [] or (target is not None and target_id is None):
        return None
    return history.Filter(
        ids, None if tenant is None else checks.name(tenant, "tenant"), target_id, statuses, from_at, until_at
    )


def _statuses(status: str | Iterable[str] | None) -> list[str] | None:
    if status is None:
        return None
    given = [status] if isinstance(status, str) else list(status)
    return [checks.choice(str(one), "status", tuple(RunStatus)) for one in given]


def _key(run: Run) -> history.Key:
    return history.Key(run.scheduled_at, run.schedule_id)


def _cursor(end: history.Key, from_at: datetime | None, until_at: datetime | None) -> str:
    bounds = (-1 if at is None else epoch_us(at) for at in (from_at, until_at))
    return cursors.encode("runs", epoch_us(end.at), end.id.hex, *bounds)
