"""`bucketd schedule pause|resume|delete|trigger|skip-next`: acts on one schedule that exists."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, iso, say
from bucketd.cli.schedule import group as group
from bucketd.cli.session import session


@group.command()
def pause(
    context: typer.Context,
    name: options.Name,
    tenant: options.Tenant = "default",
    reason: Annotated[str | None, typer.Option(help="Why, for whoever looks.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="INSTANT", help=f"Resumes by itself then: {options.INSTANT}.")
    ] = None,
    if_revision: options.IfRevision = None,
) -> None:
    """Stops new runs, and drops those that are due but not started; runs that exist go on."""
    with session(context).client() as client:
        end = options.maybe_instant(until, "until")
        client.schedules.pause(name, tenant=tenant, reason=reason, until=end, if_revision=if_revision)
    say(f"paused: {tenant}/{name}" + (f" until {iso(end)}" if end else ""))


@group.command()
def resume(
    context: typer.Context,
    name: options.Name,
    tenant: options.Tenant = "default",
    if_revision: options.IfRevision = None,
) -> None:
    """Goes on from now; what lay in the pause does not run."""
    with session(context).client() as client:
        client.schedules.resume(name, tenant=tenant, if_revision=if_revision)
        coming = client.schedules.next(name, 1, tenant=tenant)
    say(f"resumed: {tenant}/{name}; " + (f"next at {iso(coming[0])}" if coming else "no occurrence left"))


@group.command()
def delete(
    context: typer.Context,
    name: options.Name,
    tenant: options.Tenant = "default",
    if_revision: options.IfRevision = None,
    yes: options.Yes = False,
) -> None:
    """Deletes the schedule; its runs that have not ended are cancelled."""
    with session(context).client() as client:
        client.schedules.get(name, tenant=tenant)  # ask about what exists only
        options.confirmed(f"Delete {tenant}/{name}, and cancel its unfinished runs?", yes)
        client.schedules.delete(name, tenant=tenant, if_revision=if_revision)
    say(f"deleted: {tenant}/{name}")


@group.command()
def trigger(
    context: typer.Context, name: options.Name, tenant: options.Tenant = "default", as_json: options.Json = False
) -> None:
    """Runs it once, now, beside its timing; prints the id of the run."""
    with session(context).client() as client:
        run = client.schedules.trigger(name, tenant=tenant)
    if as_json:
        emit({"run_id": run})
    else:
        say(str(run))


@group.command("skip-next")
def skip_next(
    context: typer.Context, name: options.Name, tenant: options.Tenant = "default", as_json: options.Json = False
) -> None:
    """Skips the next occurrence, and no other; prints its instant."""
    with session(context).client() as client:
        at = client.schedules.skip_next(name, tenant=tenant)
    if as_json:
        emit({"skipped": at})
    else:
        say(f"skipped: {tenant}/{name} at {iso(at)}")
