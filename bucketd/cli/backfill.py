"""`bucketd backfill`: runs the occurrences of a past window that have no run."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, iso, note, say
from bucketd.cli.progress import bar
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client import Client
    from bucketd.store.backfills import Backfill
    from bucketd.store.config import Settings

POLL_S = 0.5


def backfill(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of one schedule; or choose with the options.", show_default=False),
    ] = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    label: options.AnyLabel = None,
    everything: Annotated[bool, typer.Option("--all", help="All schedules.")] = False,
    from_at: options.FromAt = None,
    to: options.ToAt = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all its runs have ended; shows how far it is.")] = False,
    as_json: options.Json = False,
) -> None:
    """Runs each occurrence in [--from, --to) that has no run yet, behind live work; prints the backfill's id.

    Schedules are taken as they are now, paused ones too; an occurrence that has a run is left alone. It goes on by itself:
    schedulers write the runs, runners call them with what capacity is left. A NAME alone is of tenant `default`. Ctrl-C
    during --wait ends the waiting, not the backfill.
    """
    if from_at is None or to is None:
        raise InvalidInput("expected --from and --to, the window of scheduled_at; e.g. --from -24h --to now")
    chosen: dict[str, Any] = {"name": name, "tenant": tenant, "target": target, "labels": options.labels(label)}
    if everything == any(value is not None for value in chosen.values()):
        raise InvalidInput("expected either --all, or some of NAME, --tenant, --target and --label to choose schedules")
    settings = session(context).settings()
    with session(context).client() as client:
        now = client.status().now  # the cluster's: by a clock that is ahead, `now` would be refused as the future
        begun, end = options.instant(from_at, "from", now), options.instant(to, "to", now)
        made = client.backfill(begun, end, all=everything, **chosen)
        if wait:
            note(f"backfill {made.id}: {iso(begun)} to {iso(end)}")
            made = _wait(client, settings, made)
    if as_json:
        emit(made)
    elif wait:
        end_of_it = (
            f"; it ended early: {made.error}"
            if made.error
            else "; it was cancelled"
            if made.cancelled
            else ", all ended"
        )
        say(f"backfill {made.id}: {made.runs_created} runs written{end_of_it}")
    else:
        say(str(made.id))
    if made.error:
        raise typer.Exit(1)


def _wait(client: Client, settings: Settings, made: Backfill) -> Backfill:
    """The backfill when all its runs are written and have ended."""
    from bucketd.store import backfills
    from bucketd.store.connect import connect, postgres_errors
    from bucketd.store.operation import drive

    with (
        postgres_errors(settings),
        closing(connect(settings)) as connection,
        bar("runs") as report,
    ):
        while True:
            found = client.backfills.get(made.id)
            unfinished = drive(backfills.unfinished(found), connection)
            written = found.runs_created if found.finished_at is not None else None
            report(max(0, found.runs_created - unfinished), written)
            if written is not None and (not unfinished or found.cancelled or found.error):
                return found
            time.sleep(POLL_S)
