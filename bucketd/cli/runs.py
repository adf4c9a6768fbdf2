"""`bucketd runs ..`: what ran, runs, or waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, iso, note, pairs, plain, say, short, table
from bucketd.cli.pages import items
from bucketd.cli.progress import working
from bucketd.cli.session import session
from bucketd.store.model import RunStatus

if TYPE_CHECKING:
    from bucketd.store.history import Run

group = typer.Typer(
    no_args_is_help=True, help="Runs: one for each occurrence that was due, with its attempts and its end."
)

RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="As `runs list` prints it and the target receives it.", show_default=False)
]


@group.command("list")
def list_(
    context: typer.Context,
    name: Annotated[str | None, typer.Option("--name", help="Only of this schedule.", show_default=False)] = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    status: Annotated[
        list[str] | None, typer.Option(help=f"Only {', '.join(RunStatus)}; again for more.", show_default=False)
    ] = None,
    from_at: options.FromAt = None,
    to: options.ToAt = None,
    limit: options.Limit = 100,
    as_json: options.Json = False,
) -> None:
    """Lists runs by the instant they were scheduled at, newest first.

    Without --from, those of the last 24 h; but runs that wait (retrying, deferred, waiting, held) wherever they lie.
    """
    wanted: dict[str, Any] = {
        "name": name,
        "tenant": tenant,
        "target": target,
        "status": status or None,
        "from_": options.maybe_instant(from_at, "from"),
        "to": options.maybe_instant(to, "to"),
    }
    with session(context).client() as client, working("reading runs"):
        found = list(items(client.runs.list, limit + 1, **wanted))
    if as_json:
        emit_lines(found[:limit])
        return
    columns = ("run", "tenant", "schedule", "status", ">attempt", ">http", ">late", "reason")
    table(columns, map(_row, found[:limit]), empty="no such run")
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(context: typer.Context, run_id: RunId, as_json: options.Json = False) -> None:
    """Shows one run with its failed attempts."""
    with session(context).client() as client:
        found = client.runs.get(run_id)
    if as_json:
        emit(found)
        return
    values = plain(found)
    assert isinstance(values, dict)
    failures = values.pop("failures", None) or ()
    pairs(values)
    if failures:
        rows = ((f.get("attempt"), f.get("began"), f.get("at"), f.get("status"), f.get("error")) for f in failures)
        table((">attempt", "began", "ended", ">http", "error"), rows, empty="")


@group.command()
def cancel(context: typer.Context, run_id: RunId) -> None:
    """Cancels a run that has not ended (else code 5); a call in flight goes on, its answer counts no more."""
    with session(context).client() as client:
        client.runs.cancel(run_id)
    say(f"cancelled: {run_id}")


def _row(run: Run) -> tuple[object, ...]:
    """`late`: the start of a first attempt after what was due. A run that its target accepted shows when its end is expected."""
    late_s = None
    if run.started_at and run.attempt == 1:
        late_s = (run.started_at - run.scheduled_at).total_seconds() - run.jitter_offset_s
    expected = f"ends by {iso(run.wake_at)}" if run.status is RunStatus.RUNNING and run.wake_at else ""
    reason = f"{expected or run.reason or ''}{f' (+{run.missed} missed)' if run.missed else ''}".strip()
    return run.id, run.tenant, run.name, run.status, run.attempt, run.http_status, short(late_s), reason
