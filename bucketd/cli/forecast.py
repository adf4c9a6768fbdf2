"""`bucketd forecast`: what falls due in the coming hours, where it piles up, and what would flatten it."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, stdout
from bucketd.cli.progress import bar
from bucketd.cli.session import session


def forecast(
    context: typer.Context,
    hours: Annotated[int, typer.Option("--hours", min=1, max=48, help="How far to look ahead.")] = 6,
    by: Annotated[
        str, typer.Option("--by", metavar="KIND", help="List loads by tenant, target or partition.")
    ] = "tenant",
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    label: options.AnyLabel = None,
    top: Annotated[int, typer.Option("--top", min=1, max=200, help="List so many of them, the largest.")] = 10,
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="DURATION", help="The jitter to try on the highest peak, up to 1h.")
    ] = "300s",
    as_json: options.Json = False,
) -> None:
    """Shows how many calls fall due in each minute of the coming hours, and the minutes in which they pile up.

    For each peak: how many at once, in its busiest second too, and which schedules, tenants and targets make it. For the highest one:
    what it would become if its schedules had `H` in place of the minute (`0 * * * *` becomes `H * * * *`: each gets a minute of its
    own), or a jitter. Nothing is changed. Counts are of schedules as they are now; paused ones count from the end of their pause on,
    if it has one. Times are UTC.
    """
    from bucketd.cli.skyline import drawn

    wanted = options.labels(label)
    jitter_s = options.seconds(jitter, "jitter")
    with session(context).client() as client, bar("counting what falls due") as report:
        found = client.forecast(
            hours=hours, by=by, tenant=tenant, target=target, labels=wanted, top=top, jitter_s=jitter_s, progress=report
        )
    if as_json:
        emit(found)
        return
    console = stdout()
    console.print(drawn(found, console.width))
