"""Reading and small writes of schedules and targets, from checked arguments to operations."""

from __future__ import annotations

from collections.abc import Mapping

from bucketd.client import checks, cursors
from bucketd.client.results import Page, Schedule
from bucketd.client.views import schedule
from bucketd.store import schedules, targets
from bucketd.store.operation import Operation
from bucketd.store.targets import Target


def list_targets(limit: int, cursor: str | None) -> Operation[Page[Target]]:
    """A page of targets by name."""
    after = cursors.decode("targets", cursor, (str,))
    found = yield from targets.list_after(str(after[0]) if after else None, checks.limit(limit) + 1)
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.encode("targets", found[limit - 1].name) if more else None)


def get_schedule(tenant: str, name: str) -> Operation[Schedule]:
    """The schedule of this name. Raises NotFound."""
    return schedule((yield from schedules.get(checks.name(tenant, "tenant"), checks.name(name, "name"))))


def list_schedules(
    tenant: str | None,
    target: str | None,
    labels: Mapping[str, str] | None,
    paused: bool | None,
    prefix: str | None,
    limit: int,
    cursor: str | None,
) -> Operation[Page[Schedule]]:
    """A page of schedules by tenant and name."""
    filters = {
        "tenant": None if tenant is None else checks.name(tenant, "tenant"),
        "target": None if target is None else checks.name(target, "target"),
        "labels": checks.labels(labels) if labels else None,
        "paused": paused,
        "prefix": checks.name(prefix, "prefix") if prefix else None,
    }
    key = cursors.decode("schedules", cursor, (str, str))
    after = (str(key[0]), str(key[1])) if key else None
    found = yield from schedules.list_after(filters, after, checks.limit(limit) + 1)
    more = len(found) > limit
    last = found[limit - 1] if more else None
    return Page(
        tuple(schedule(s) for s in found[:limit]), cursors.encode("schedules", last.tenant, last.name) if last else None
    )


def positive(n: int) -> int:
    """How many occurrences are asked for. Raises InvalidInput."""
    return checks.integer(n, "n", 1, 1_000)
