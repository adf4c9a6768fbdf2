"""Backfills and holds, from checked arguments to operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from bucketd.client import checks, cursors
from bucketd.client.results import Page
from bucketd.client.timings import aware
from bucketd.errors import InvalidInput, NotFound
from bucketd.store import backfills, holds, schedules, targets
from bucketd.store.backfills import Backfill
from bucketd.store.holds import Hold, Scope
from bucketd.store.operation import Operation


def backfill(
    from_: datetime,
    to: datetime,
    name: str | None,
    tenant: str | None,
    target: str | None,
    labels: Mapping[str, str] | None,
    all: bool,
) -> Operation[Backfill]:
    """Asks for the occurrences of [from_, to). Raises InvalidInput, NotFound."""
    from_at, until_at = aware(from_, "from_"), aware(to, "to")
    filtered = bool(labels) or any(part is not None for part in (name, tenant, target))
    if filtered == bool(all):
        raise InvalidInput("expected either a filter (name, tenant, target, labels) or all=True", field="all")
    if from_at >= until_at:
        raise InvalidInput(
            f"expected from_ before to, got {from_at.isoformat()} and {until_at.isoformat()}", field="from_"
        )
    labels_text = checks.labels(labels) if labels else None
    if name is not None:
        tenant = "default" if tenant is None else tenant
        yield from schedules.get(checks.name(tenant, "tenant"), checks.name(name, "name"))
    elif tenant is not None:
        checks.name(tenant, "tenant")
    target_id = None if target is None else (yield from _target_id(target))
    known = yield from schedules.days()
    if from_at < known.retention_floor:
        raise InvalidInput(
            f"expected from_ not before the retention floor {known.retention_floor.isoformat()}, got {from_at.isoformat()}: runs below it"
            " were dropped, so nobody knows which of them ran; raise retention_days to keep more",
            field="from_",
        )
    if until_at > known.now:
        raise InvalidInput(
            f"expected to not after now ({known.now.isoformat()}), got {until_at.isoformat()}: what lies ahead fires by itself",
            field="to",
        )
    yield from schedules.make_days(known, from_at, until_at)
    return (yield from backfills.create(tenant, name, target_id, labels_text, from_at, until_at))


def list_backfills(open_only: bool, limit: int, cursor: str | None) -> Operation[Page[Backfill]]:
    """A page of backfills, newest first."""
    key = cursors.decode("backfills", cursor, (int,))
    found = yield from backfills.list_before(int(key[0]) if key else None, open_only, checks.limit(limit) + 1)
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.encode("backfills", found[limit - 1].id) if more else None)


def hold(all: bool, tenant: str | None, target: str | None, reason: str) -> Operation[Hold]:
    """Holds everything, a tenant or a target. Raises InvalidInput, NotFound (target)."""
    scope, _ = yield from _scope(all, tenant, target)
    yield from holds.hold(scope, checks.name(reason, "reason", longest=1_000) if reason else "")
    for found in (yield from holds.list_all()):
        if (found.kind, found.scope, found.tenant, found.target) == ("user", scope.scope, scope.tenant, target):
            return found
    raise NotFound("the hold was released in the meantime; hold again")


def release(all: bool, tenant: str | None, target: str | None, breaker: bool, dry_run: bool) -> Operation[int]:
    """Ends a hold, or closes a breaker, or only finds it; its id. What it held is judged afterwards. Raises InvalidInput, NotFound."""
    if breaker and target is None:
        raise InvalidInput("expected the target whose breaker is to be closed", field="target")
    scope, shown = yield from _scope(all, tenant, target)
    shown = f"an open breaker of {shown}" if breaker else f"a hold of {shown}"
    scope = replace(scope, kind="breaker") if breaker else scope
    return (yield from (holds.find if dry_run else holds.release)(scope, shown))


def _scope(all: bool, tenant: str | None, target: str | None) -> Operation[tuple[Scope, str]]:
    if [bool(all), tenant is not None, target is not None].count(True) != 1:
        raise InvalidInput("expected exactly one of all=True, tenant and target", field="all")
    if tenant is not None:
        return Scope("tenant", tenant=checks.name(tenant, "tenant")), f"tenant {tenant!r}"
    if target is not None:
        return Scope("target", target_id=(yield from _target_id(target))), f"target {target!r}"
    return Scope("all"), "everything"


def _target_id(name: str) -> Operation[int]:
    found = (yield from targets.ids([checks.name(name, "target")])).get(name)
    if found is None:
        raise NotFound(f"expected the name of a target, got {name!r}, which does not exist")
    return found
