"""`bucketd dead ..`: runs that used up their attempts, kept with payload and failures until someone decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, note, pairs, plain, say, table
from bucketd.cli.pages import items
from bucketd.cli.progress import working
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client import Client

COUNTED = 10_000  # beyond it a question is as good without the figure

group = typer.Typer(no_args_is_help=True, help="Dead letters: look, run again (replay), or drop (discard).")

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID..", help="Ids of dead letters; or choose with the options.", show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.")]
OfName = Annotated[str | None, typer.Option("--name", help="Only of this schedule.", show_default=False)]


@group.command("list")
def list_(
    context: typer.Context,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    limit: options.Limit = 100,
    as_json: options.Json = False,
) -> None:
    """Lists dead letters, the latest first."""
    with session(context).client() as client:
        found = list(items(client.dead.list, limit + 1, name=name, tenant=tenant, target=target))
    if as_json:
        emit_lines(found[:limit])
        return
    rows = ((d.id, d.tenant, d.name, d.scheduled_at, d.died_at, d.attempts, d.reason) for d in found[:limit])
    table(
        (">id", "tenant", "schedule", "scheduled at", "died at", ">attempts", "reason"), rows, empty="no dead letters"
    )
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(
    context: typer.Context, dead_letter: Annotated[int, typer.Argument(metavar="ID")], as_json: options.Json = False
) -> None:
    """Shows one dead letter with its payload and failures."""
    with session(context).client() as client:
        found = client.dead.get(dead_letter)
    if as_json:
        emit(found)
        return
    values = plain(found)
    assert isinstance(values, dict)
    pairs(values)


@group.command()
def replay(
    context: typer.Context,
    ids: Ids = None,
    everything: Everything = False,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Runs them again: the same run, the next attempt number. Choose by ids, or by --all, --name, --tenant, --target.

    Without ids it counts first, and asks unless --yes.
    """
    _decide(context, "replay", ids, everything, {"name": name, "tenant": tenant, "target": target}, yes, as_json)


@group.command()
def discard(
    context: typer.Context,
    ids: Ids = None,
    everything: Everything = False,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Drops them with their payloads; this cannot be undone. The runs stay dead. Choose as for `replay`.

    Without ids it counts first, and asks unless --yes.
    """
    _decide(context, "discard", ids, everything, {"name": name, "tenant": tenant, "target": target}, yes, as_json)


def _decide(
    context: typer.Context,
    verb: str,
    ids: list[int] | None,
    everything: bool,
    wanted: dict[str, str | None],
    yes: bool,
    as_json: bool,
) -> None:
    chosen = {key: value for key, value in wanted.items() if value is not None}
    if bool(ids) + everything + bool(chosen) != 1:
        raise InvalidInput(f"expected ids, or --all, or some of --name, --tenant and --target to say what to {verb}")
    with session(context).client() as client:
        count = getattr(client.dead, verb)(ids) if ids else _many(client, verb, chosen, yes)
    if as_json:
        emit({f"{verb}ed": count})
    else:
        say(f"{verb}ed: {count}")


def _many(client: Client, verb: str, chosen: dict[str, str], yes: bool) -> int:
    with working("counting"):
        total = client.dead.count(bound=COUNTED + 1, **chosen)
    if not total:
        return 0
    many = f"over {COUNTED:,}" if total > COUNTED else f"{total:,}"
    options.confirmed(f"{verb.capitalize()} {many} dead letter{'s' if total > 1 else ''}?", yes)
    with working(f"{verb}ing {many}"):
        return int(getattr(client.dead, verb)(all=not chosen, **chosen))
