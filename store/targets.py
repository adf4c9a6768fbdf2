"""Targets: the HTTP endpoints that schedules call, global by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from bucketd.store.errors import Conflict, NotFound
from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements


@dataclass(frozen=True, slots=True)
class Target:
    """An HTTP endpoint. `created` and `changed` tell what a put did; they are False when the target was only read."""

    id: int
    name: str
    url: str
    headers: Mapping[str, str] = field(repr=False)  # may hold credentials
    connect_timeout_s: float
    timeout_s: float
    max_attempts: int
    retry_base_s: float
    retry_cap_s: float
    batch_max: int
    batch_linger_ms: int
    batch_by_tenant: bool
    body: str  # envelope or raw
    max_running: int | None
    rate_per_s: float | None
    complete_within_s: int | None
    dead_hook_url: str | None
    signed: bool  # it has a secret, which is never shown
    revision: int
    created_at: datetime
    updated_at: datetime
    created: bool = False
    changed: bool = False


# In the order of `list`.
_COLUMNS = tuple(part.name for part in fields(Target) if part.name not in ("created", "changed"))


def put(values: Mapping[str, Any]) -> Operation[Target]:
    """Creates or changes the target `values["name"]`; writes nothing if it is as asked already. `headers` is JSON text."""
    written = yield Query(statements("targets")["put"], values)
    target = yield from get(values["name"])
    return replace(target, created=bool(written) and written[0][0] == 1, changed=bool(written))


def get(name: str) -> Operation[Target]:
    """The target of this name. Raises NotFound."""
    rows = yield Query(statements("targets")["list"], {"name": name, "after": None, "limit": 1})
    if not rows:
        raise NotFound(f"expected the name of a target, got {name!r}, which does not exist; create it with targets.put")
    return _target(rows[0])


def list_after(after: str | None, limit: int) -> Operation[list[Target]]:
    """At most `limit` targets whose names follow `after`, by name."""
    rows = yield Query(statements("targets")["list"], {"name": None, "after": after, "limit": limit})
    return [_target(row) for row in rows]


def ids(names: Iterable[str]) -> Operation[dict[str, int]]:
    """Target ids by name; unknown names are missing."""
    rows = yield Query(statements("targets")["ids"], {"names": sorted(set(names))})
    return dict(rows)


def delete(name: str) -> Operation[None]:
    """Deletes an unused target. Raises NotFound, and Conflict while schedules or unfinished runs use it."""
    rows = yield Query(statements("targets")["usage"], {"name": name})
    if not rows:
        raise NotFound(f"expected the name of a target, got {name!r}, which does not exist")
    target_id, scheduled, awaited = rows[0]
    if scheduled:
        raise Conflict(f"target {name!r} is used by schedules; delete them or give them another target first")
    if awaited:
        raise Conflict(f"target {name!r} has unfinished runs; wait for them or cancel them first")
    yield Query(statements("targets")["delete"], {"target_id": target_id})


def _target(row: Row) -> Target:
    values = dict(zip(_COLUMNS, row, strict=True))
    times = {name: values[name].astimezone(UTC) for name in ("created_at", "updated_at")}
    return Target(**{**values, **times, "headers": json.loads(values["headers"])})
