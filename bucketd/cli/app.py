"""The root of the command line: global options, and the list of commands in the order of their use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketd.cli import (
    apply,
    audit,
    backfill,
    backlog,
    calendars,
    configuration,
    dead,
    doctor,
    export,
    forecast,
    health,
    hold,
    migration,
    next,
    ring_moves,
    roles,
    runs,
    status,
    target,
    tenant,
    tz,
    up,
    verbs,
    why,
)
from bucketd.cli.exits import MEANING
from bucketd.cli.session import Session

app = typer.Typer(
    name="bucketd",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=MEANING,
)

START, DEFINE, OPERATE, LOOK = "Start", "Define", "Operate", "Look"


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings (also BUCKETD_CONFIG).")
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option("--dsn", help="Postgres (else BUCKETD_DSN). Other users of the machine can see arguments."),
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option("--redis-url", help="Redis or Valkey (else BUCKETD_REDIS_URL); optional for most commands."),
    ] = None,
) -> None:
    """Starts HTTP calls on time, from schedules that tenants define: each occurrence once.

    Settings come from these options, then BUCKETD_* variables, then the file. Without a DSN, commands use the servers
    of a `bucketd up` that runs in this folder. Try it: `bucketd demo`, or `bucketd up` and `bucketd schedule put` in
    another shell.
    """
    context.obj = Session(config, dsn, redis_url)


app.command(rich_help_panel=START)(up.up)
app.command(rich_help_panel=START)(roles.demo)
app.command(rich_help_panel=START)(migration.migrate)
app.command(rich_help_panel=START)(roles.scheduler)
app.command(rich_help_panel=START)(roles.runner)

app.add_typer(target.group, name="target", rich_help_panel=DEFINE)
app.add_typer(tenant.group, name="tenant", rich_help_panel=DEFINE)
app.add_typer(verbs.group, name="schedule", rich_help_panel=DEFINE)
app.add_typer(calendars.group, name="calendar", rich_help_panel=DEFINE)
app.command(rich_help_panel=DEFINE)(apply.apply)
app.command(rich_help_panel=DEFINE)(export.export)

app.command(rich_help_panel=OPERATE)(backfill.backfill)
app.add_typer(backlog.group, name="backlog", rich_help_panel=OPERATE)
app.command(rich_help_panel=OPERATE)(hold.hold)
app.command(rich_help_panel=OPERATE)(hold.release)
app.command(rich_help_panel=OPERATE)(hold.holds)
app.add_typer(runs.group, name="runs", rich_help_panel=OPERATE)
app.add_typer(ring_moves.group, name="ring", rich_help_panel=OPERATE)
app.add_typer(dead.group, name="dead", rich_help_panel=OPERATE)

app.command("next", rich_help_panel=LOOK)(next.next_)
app.command(rich_help_panel=LOOK, context_settings=why.SETTINGS)(why.why)
app.command(rich_help_panel=LOOK)(forecast.forecast)
app.command(rich_help_panel=LOOK)(status.status)
app.command(rich_help_panel=LOOK)(audit.audit)
app.add_typer(tz.group, name="tz", rich_help_panel=LOOK)
app.command(rich_help_panel=LOOK)(doctor.doctor)
app.command(rich_help_panel=LOOK)(health.health)
app.command(rich_help_panel=LOOK)(configuration.config)
app.command(rich_help_panel=LOOK)(configuration.version)
