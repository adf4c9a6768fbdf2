"""Reading the audit log, from checked arguments to the operation."""

from __future__ import annotations

from datetime import datetime

from bucketd.client import checks, cursors
from bucketd.client.results import Page
from bucketd.client.timings import aware
from bucketd.store import audit
from bucketd.store.audit import Change
from bucketd.store.operation import Operation


def changes(
    name: str | None,
    tenant: str | None,
    kind: str | None,
    actor: str | None,
    from_: datetime | None,
    to: datetime | None,
    limit: int,
    cursor: str | None,
) -> Operation[Page[Change]]:
    """A page of changes, newest first."""
    filters = {
        "name": None if name is None else checks.name(name, "name"),
        "tenant": None if tenant is None else checks.name(tenant, "tenant"),
        "kind": None if kind is None else checks.choice(kind, "kind", audit.KINDS),
        "actor": None if actor is None else checks.name(actor, "actor"),
        "from_at": None if from_ is None else aware(from_, "from_"),
        "to_at": None if to is None else aware(to, "to"),
    }
    key = cursors.decode("audit", cursor, (int,))
    found = yield from audit.list_before(filters, int(key[0]) if key else None, checks.limit(limit) + 1)
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.encode("audit", found[limit - 1].id) if more else None)
