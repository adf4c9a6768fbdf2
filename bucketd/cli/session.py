"""What the global options decide for one invocation: the settings, and the client made of them."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bucketd.client import Client
    from bucketd.store.config import Settings


@dataclass(frozen=True, slots=True)
class Session:
    """The options that stand before the command."""

    config: Path | None = None
    dsn: str | None = None
    redis_url: str | None = None

    def given(self) -> Settings:
        """Options over environment over file over defaults. Raises ConfigError."""
        from bucketd.store.config import Settings

        return Settings.load(file=self.config, dsn=self.dsn, redis_url=self.redis_url)

    def settings(self) -> Settings:
        """The same; without a DSN, the stores of a `bucketd up` that runs in this folder take its place."""
        from bucketd.cli.state import running

        settings = self.given()
        if settings.dsn.get_secret_value():
            return settings
        found = running()
        if found is None:
            return settings
        from bucketd.store.config import Settings

        return Settings.load(file=self.config, dsn=found.dsn, redis_url=found.redis_url)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client on the stores. Connects when it is first used; raises ConfigError."""
        from bucketd.client import Client

        settings = self.settings()
        with Client(settings=settings, actor=settings.actor or _person()) as client:
            yield client

    def environment(self, settings: Settings) -> dict[str, str]:
        """The environment of a child process that is to have the same settings; secrets are no arguments."""
        environment = dict(os.environ)
        if self.config is not None:
            environment["BUCKETD_CONFIG"] = str(self.config.resolve())
        environment["BUCKETD_DSN"] = settings.dsn.get_secret_value()
        environment["BUCKETD_REDIS_URL"] = settings.redis_url.get_secret_value()
        return environment


def _person() -> str:
    """Who sits at this shell, for the audit log."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no such user: a container with a number for one
        return f"uid {os.getuid()}@{socket.gethostname()}"


def session(context: typer.Context) -> Session:
    """The session of the running command."""
    found = context.find_root().obj
    return found if isinstance(found, Session) else Session()
