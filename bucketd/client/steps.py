"""Small changes of one schedule that exists: pause, resume, delete; each may insist on a revision."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bucketd.client import checks
from bucketd.client.queries import get_schedule
from bucketd.client.results import Schedule
from bucketd.client.timings import aware
from bucketd.errors import Conflict, InvalidInput
from bucketd.store import schedules
from bucketd.store.operation import Operation


def pause(
    tenant: str, name: str, reason: str | None, until: datetime | None, if_revision: int | None
) -> Operation[Schedule]:
    """Pauses. Raises InvalidInput (until is not in the future), NotFound, Conflict."""
    wanted = revision(if_revision)
    text = checks.name(reason, "reason", longest=1_000) if reason else None
    end = None if until is None else aware(until, "until")
    if end is not None and end.timestamp() <= (yield from schedules.now_s()):
        raise InvalidInput(f"expected until in the future, got {end.isoformat()}", field="until")
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    changed = yield from schedules.pause(*key, text, end, wanted)
    return replace((yield from _at(*key, wanted, changed)), changed=changed)


def resume(tenant: str, name: str, if_revision: int | None) -> Operation[Schedule]:
    """Resumes. Raises NotFound, Conflict."""
    wanted = revision(if_revision)
    key = checks.name(tenant, "tenant"), checks.name(name, "name")
    changed = yield from schedules.resume(*key, wanted)
    return replace((yield from _at(*key, wanted, changed)), changed=changed)


def delete(tenant: str, name: str, if_revision: int | None) -> Operation[None]:
    """Deletes a schedule and cancels its unfinished runs. Raises NotFound, Conflict."""
    wanted = revision(if_revision)
    found = yield from get_schedule(tenant, name)
    if not (yield from schedules.delete([found.id], wanted)) and wanted is not None:
        raise differs(found.name, wanted, (yield from get_schedule(tenant, name)).revision)


def revision(value: object) -> int | None:
    """A revision to insist on, or None. Raises InvalidInput."""
    return None if value is None else checks.integer(value, "if_revision", 0)


def differs(name: str, wanted: int, actual: int) -> Conflict:
    """What to raise for a schedule at another revision than its writer thought."""
    return Conflict(
        f"expected {name!r} at revision {wanted}, got {actual}: somebody changed it meanwhile; read it again, and decide anew"
    )


def _at(tenant: str, name: str, wanted: int | None, changed: bool) -> Operation[Schedule]:
    found = yield from get_schedule(tenant, name)
    if wanted is not None and not changed and found.revision != wanted:
        raise differs(name, wanted, found.revision)
    return found
