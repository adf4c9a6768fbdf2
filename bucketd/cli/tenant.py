"""`bucketd tenant ..`: caps of tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, note, pairs, plain, say, table
from bucketd.cli.pages import items
from bucketd.cli.session import session

group = typer.Typer(no_args_is_help=True, help="Caps of tenants; a tenant without one needs no entry here.")

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant.", show_default=False)]


@group.command()
def put(
    context: typer.Context,
    name: TenantName,
    max_running: Annotated[
        int, typer.Option(help="So many runs at once, in the whole cluster; what is over waits.", show_default=False)
    ],
    as_json: options.Json = False,
) -> None:
    """Gives the tenant a cap, or another one. Runs that go on already are let be."""
    with session(context).client() as client:
        stored = client.tenants.put(name, max_running=max_running)
    if as_json:
        emit(stored)
    else:
        done = "created" if stored.created else "changed" if stored.changed else "unchanged"
        say(f"{done}: {name} runs {stored.max_running} at once")


@group.command("list")
def list_(context: typer.Context, limit: options.Limit = 100, as_json: options.Json = False) -> None:
    """Lists tenants with a cap."""
    with session(context).client() as client:
        found = list(items(client.tenants.list, limit + 1))
    if as_json:
        emit_lines(found[:limit])
        return
    rows = ((tenant.name, tenant.max_running, tenant.updated_at) for tenant in found[:limit])
    table(("tenant", ">max running", "since"), rows, empty="no tenant has a cap")
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(context: typer.Context, name: TenantName, as_json: options.Json = False) -> None:
    """Shows the cap of one tenant. Code 3: it has none."""
    with session(context).client() as client:
        found = client.tenants.get(name)
    if as_json:
        emit(found)
    else:
        values = plain(found)
        assert isinstance(values, dict)
        pairs(values)


@group.command()
def delete(context: typer.Context, name: TenantName, yes: options.Yes = False) -> None:
    """Takes the tenant's cap away; its schedules and runs stay."""
    with session(context).client() as client:
        client.tenants.get(name)  # ask about what exists only
        options.confirmed(f"Let {name} run as much at once as there is room for?", yes)
        client.tenants.delete(name)
    say(f"deleted: the cap of {name}")
