"""`bucketd up`: a whole cluster in one process group, for a first look, for development, and for one machine.

Order of the start: stores, schema, state file, schedulers, runners. Of the stop: schedulers (nothing new is drained),
runners (calls in flight end), state file, stores. What if it dies halfway: children and stores are tied to its life
(leash.py, embedded/guard.py), the state file to its lock (state.py).
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bucketd.cli import state
from bucketd.cli.children import Children
from bucketd.cli.output import note
from bucketd.cli.session import Session, session

if TYPE_CHECKING:
    from bucketd.store.config import Settings

TEND_S = 0.2
SCHEDULER_GRACE_S = 5.0


class Stop:
    """Set by SIGINT and SIGTERM; a second signal means: hurry."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.hurried = False

    def on_signal(self, number: int, frame: object) -> None:
        """The handler."""
        self.hurried = self.asked.is_set()
        self.asked.set()


def up(
    context: typer.Context,
    schedulers: Annotated[int, typer.Option("--schedulers", min=0, max=64, help="Scheduler nodes.")] = 1,
    runners: Annotated[int, typer.Option("--runners", min=0, max=64, help="Runners.")] = 1,
    directory: Annotated[
        Path, typer.Option("--directory", help="Folder of embedded servers and logs.")
    ] = state.DIRECTORY,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines instead of the live panel, also on a terminal.")
    ] = False,
) -> None:
    """Runs everything: schedulers and runners, and without a DSN also Postgres and Redis, in .bucketd/ (kept between
    runs).

    Brings the schema up to date, and shows what goes on until Ctrl-C or SIGTERM, which stops all in order and leaves
    nothing running; a second one does not wait for calls in flight. Other shells in this folder find the servers by
    themselves. A process that dies is started again, after 1 s, then 2, 4 .. 30. Without a terminal, logs go to
    stderr, else to a folder.
    """
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop.on_signal)
    chosen = session(context)
    with state.occupied(directory), ExitStack() as stack:
        settings = stack.enter_context(_stores(chosen, directory))
        live = sys.stdout.isatty() and not plain
        children = Children(environment(chosen, settings), tell=lambda text: note(text, "yellow"))
        groups = (("scheduler", SCHEDULER_GRACE_S), ("runner", settings.drain_timeout_s + 5))
        stack.callback(children.stop, groups, lambda: stop.hurried)
        if stop.asked.is_set():
            return
        _start(children, schedulers, runners, directory / "logs" if live else None)
        _watch(children, settings, stop, live)
        note("stopping; Ctrl-C again does not wait for calls in flight")
    note("stopped")


@contextmanager
def _stores(chosen: Session, directory: Path) -> Iterator[Settings]:
    """Settings of stores that run and have the schema: the given ones, else embedded ones for the time of the block."""
    from bucketd.store.errors import ConfigError
    from bucketd.store.migrate import migrate

    settings = chosen.given()
    has_dsn, has_redis = bool(settings.dsn.get_secret_value()), bool(settings.redis_url.get_secret_value())
    if has_dsn != has_redis:
        missing = "BUCKETD_REDIS_URL" if has_dsn else "BUCKETD_DSN"
        raise ConfigError(
            f"expected both stores, or none (then embedded ones are started), got no {missing}; set it or unset the other"
        )
    with ExitStack() as stack:
        if not has_dsn:
            settings = stack.enter_context(_embedded(settings, directory))
        _check_fit(settings)
        applied = migrate(settings.dsn.get_secret_value())
        note(f"schema: {'applied ' + ', '.join(applied) if applied else 'up to date'}")
        if not has_dsn:
            _publish(settings, directory)
        yield settings


@contextmanager
def _embedded(settings: Settings, directory: Path) -> Iterator[Settings]:
    from pydantic import SecretStr

    from bucketd.embedded import KEPT, start_postgres, start_redis

    note(f"starting Postgres and Redis in {directory.resolve()}")
    with (
        start_postgres(directory / "postgres") as postgres,
        start_redis(directory / "redis", settings=KEPT) as redis,
    ):
        note(f"Postgres is process {postgres.pid}, Redis {redis.pid}")
        yield settings.model_copy(update={"dsn": SecretStr(postgres.url), "redis_url": SecretStr(redis.url)})


def _publish(settings: Settings, directory: Path) -> None:
    """Tells other shells where the stores are; `state.occupied` takes it back at the end."""
    found = state.Running(settings.dsn.get_secret_value(), settings.redis_url.get_secret_value(), os.getpid())
    exports = state.remember(directory, found)
    if directory.resolve() == state.DIRECTORY.resolve():
        note("in another shell in this folder, commands find them by themselves: bucketd status")
    note(f"elsewhere, first (it sets BUCKETD_DSN and BUCKETD_REDIS_URL): . {shlex.quote(str(exports))}")


def _check_fit(settings: Settings) -> None:
    """Refuses a Redis that would lose fires before anything is started. Raises UnfitRedis, StoreUnavailable."""
    import asyncio

    from bucketd.store.redis_client import check_redis, make_redis

    async def check() -> None:
        client = make_redis(settings, connections=1)
        try:
            await check_redis(client, settings)
        finally:
            await client.aclose()

    asyncio.run(check())


def environment(chosen: Session, settings: Settings) -> dict[str, str]:
    """Of the children. The targets of a first look are on this machine, which runners do not call unless they are told to."""
    from bucketd.store.allow_list import LOOPBACK

    made = chosen.environment(settings)
    if "egress_allow" not in settings.model_fields_set:
        made["BUCKETD_EGRESS_ALLOW"] = LOOPBACK
        note(
            f"runners may call this machine ({LOOPBACK}) beside the public internet; BUCKETD_EGRESS_ALLOW says otherwise"
        )
    return made


def _start(children: Children, schedulers: int, runners: int, logs: Path | None) -> None:
    if logs is not None:
        logs.mkdir(exist_ok=True)
    for module, count in (("scheduler", schedulers), ("runner", runners)):
        arguments = ("-m", "bucketd", module) if module == "scheduler" else ("-m", "bucketd.runner")
        for number in range(1, count + 1):
            name = f"{module}-{number}"
            children.add(name, *arguments, log=logs / f"{name}.log" if logs else None)
    where = f"; logs in {logs}" if logs else ""
    note(f"up: {schedulers} scheduler{'s' * (schedulers != 1)}, {runners} runner{'s' * (runners != 1)}{where}")


def _watch(children: Children, settings: Settings, stop: Stop, live: bool) -> None:
    """Tends the children, and shows what the stores say, until a signal comes."""
    from bucketd.cli.panel import Panel, Watcher

    with Watcher(settings) as watcher, Panel(watcher, children, live) as panel:
        while not stop.asked.wait(TEND_S):
            now = time.monotonic()
            children.tend(now)
            panel.draw(now)
