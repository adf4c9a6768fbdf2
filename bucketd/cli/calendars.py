"""`bucketd calendar ..`: dates on which the schedules that name the calendar do not fire."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, note, say, table
from bucketd.cli.pages import items
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

group = typer.Typer(no_args_is_help=True, help="Holiday calendars of a tenant; schedules name those they leave out.")

CalendarName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the calendar.", show_default=False)]
Tenant = Annotated[str, typer.Option("--tenant", "-t", help="Tenant of the calendar.")]


@group.command()
def put(
    context: typer.Context,
    name: CalendarName,
    dates: Annotated[
        list[str] | None, typer.Argument(metavar="DATE..", help="2026-12-25 2026-12-26 ..", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Dates one a line; what stands behind a # is ignored.", show_default=False)
    ] = None,
    tenant: Tenant = "default",
    as_json: options.Json = False,
) -> None:
    """Creates the calendar, or gives it exactly these dates; schedules that name it follow from now on."""
    if not dates and file is None:  # an empty file says it; no argument may be a slip, and would bring every date back
        raise InvalidInput("dates: expected dates or --file, got neither", field="dates")
    days = options.dates([*(dates or ()), *(_lines(file) if file else ())], "dates")
    with session(context).client() as client:
        stored = client.calendars.put(name, days, tenant=tenant)
    if as_json:
        emit(stored)
    else:
        say(
            f"{tenant}/{name}: {len(stored.dates)} dates, revision {stored.revision}; {stored.schedules} schedules name it"
        )


@group.command("list")
def list_(
    context: typer.Context,
    tenant: options.AnyTenant = None,
    limit: options.Limit = 100,
    as_json: options.Json = False,
) -> None:
    """Lists calendars by tenant and name."""
    with session(context).client() as client:
        found = list(items(client.calendars.list, limit + 1, tenant=tenant))
    if as_json:
        emit_lines(found[:limit])
        return
    rows = (
        (c.tenant, c.name, len(c.dates), c.dates[0] if c.dates else "", c.dates[-1] if c.dates else "", c.schedules)
        for c in found[:limit]
    )
    table(("tenant", "name", "dates", "first", "last", "schedules"), rows, empty="no calendar")
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(context: typer.Context, name: CalendarName, tenant: Tenant = "default", as_json: options.Json = False) -> None:
    """Shows the dates of a calendar, one a line: what `put --file` reads."""
    with session(context).client() as client:
        found = client.calendars.get(name, tenant=tenant)
    if as_json:
        emit(found)
    else:
        for day in found.dates:
            say(f"{day}  # {day:%A}")


@group.command()
def delete(context: typer.Context, name: CalendarName, tenant: Tenant = "default", yes: options.Yes = False) -> None:
    """Deletes a calendar that no schedule names."""
    with session(context).client() as client:
        client.calendars.get(name, tenant=tenant)  # ask about what exists only
        options.confirmed(f"Delete calendar {tenant}/{name}?", yes)
        client.calendars.delete(name, tenant=tenant)
    say(f"deleted: {tenant}/{name}")


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"file: expected readable text in {file}: {error}", field="file") from None
    return [date for line in text.splitlines() if (date := line.partition("#")[0].strip())]
