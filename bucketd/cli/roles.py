"""The two kinds of process that make a cluster, and the demo."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from bucketd.cli.session import session


def scheduler(context: typer.Context) -> None:
    """Runs one scheduler node: it plans, drains and settles the partitions that it owns.

    Start as many as you like; they share the work. SIGTERM hands the partitions over and ends it in about a second.
    Needs BUCKETD_DSN and BUCKETD_REDIS_URL. Logs go to stderr, one event a line.
    """
    import uvloop

    from bucketd.scheduler.node import run
    from bucketd.store.log import event, to_stderr

    settings = session(context).settings()
    to_stderr(settings.log_level, settings.log_format)
    event("settings", **settings.shown())
    uvloop.run(run(settings))


def runner(context: typer.Context) -> None:
    """Runs one runner: it confirms due fires, calls the targets and writes the results.

    Start as many as you like. SIGTERM lets calls in flight end (for BUCKETD_DRAIN_TIMEOUT_S at most); what is left
    then goes to another runner. Needs BUCKETD_DSN and BUCKETD_REDIS_URL. Logs go to stderr, one event a line.
    """
    chosen = session(context)
    environment = chosen.environment(chosen.settings())
    # The same process, pid and all: supervisors, signals and logs see a runner and no parent of one.
    os.execve(sys.executable, [sys.executable, "-m", "bucketd.runner"], environment)


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything, under a minute.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder with data and logs, and say where.")] = False,
) -> None:
    """Shows the whole: embedded stores, two schedulers, two runners, a sample product; kills one of each, and counts.

    Ends with a verdict, and with code 0 only if no occurrence is missing, doubled or early. Leaves nothing running.
    """
    from bucketd.demo.run import demo as run_demo

    raise typer.Exit(run_demo(quick=quick, keep=keep))
