"""`bucketd audit`: who changed what, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import clean, emit_lines, note, table
from bucketd.cli.pages import items
from bucketd.cli.session import session

if TYPE_CHECKING:
    from bucketd.store.audit import Change

SHOWN = 48  # characters of a value on the screen; --json has all


def audit(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only of what has this name.", show_default=False)
    ] = None,
    tenant: options.AnyTenant = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Only of: schedule, target, tenant, hold, calendar, backfill, run.", show_default=False),
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this one did.", show_default=False)] = None,
    from_: options.FromAt = None,
    to: options.ToAt = None,
    limit: options.Limit = 50,
    as_json: options.Json = False,
) -> None:
    """Lists changes, the newest first: who changed what, from what to what.

    Set BUCKETD_ACTOR (or `actor` of the library's Client) to be known by name; otherwise the database user stands here.
    """
    wanted: dict[str, Any] = {"name": name, "tenant": tenant, "kind": kind, "actor": actor}
    wanted |= {"from_": options.maybe_instant(from_, "from"), "to": options.maybe_instant(to, "to")}
    with session(context).client() as client:
        found = list(items(client.audit, limit + 1, **wanted))
    if as_json:
        emit_lines(found[:limit])
        return
    rows = ((c.at, c.actor, f"{c.kind} {c.action}", _whose(c), c.revision or "", _changes(c)) for c in found[:limit])
    table(("at", "actor", "deed", "of", "revision", "changes"), rows, empty="no such change")
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


def _whose(change: Change) -> str:
    if change.kind == "tenant":
        return change.name
    return f"{change.tenant}/{change.name}" if change.tenant else change.name or change.object_id


def _changes(change: Change) -> str:
    parts = []
    for column, values in change.changes.items():
        if values is None:
            parts.append(f"{column}: changed")
        else:
            old, new = (text if len(text := str(value)) <= SHOWN else f"{text[: SHOWN - 1]}…" for value in values)
            parts.append(f"{column}: {old} -> {new}")
    return clean("; ".join(parts))
