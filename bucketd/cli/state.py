"""The folder `.bucketd/`, and how a command in another shell finds the servers that `bucketd up` runs there.

`up` holds the lock on `up.lock` for its whole life, so the kernel says whether `state.json` is true: a file that a
killed `up` left behind is seen to be stale, whoever has its pid by now. Both files carry a password and are for their
owner alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bucketd.store.errors import Conflict

DIRECTORY = Path(".bucketd")
_STATE, _LOCK, _ENV = "state.json", "up.lock", "env"
_PATIENCE_S = 0.5  # a reader holds a shared lock for some microseconds


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a living `bucketd up`."""

    dsn: str
    redis_url: str
    pid: int


@contextmanager
def occupied(directory: Path) -> Iterator[None]:
    """Holds the folder, made if there is none, for one `up`. Raises Conflict if another one has it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ".gitignore").write_text("*\n")
    fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locks(fd, fcntl.LOCK_EX, _PATIENCE_S):
            raise Conflict(
                f"another `bucketd up` runs in {directory.resolve()}; stop it, or give this one its own --directory"
            )
        try:
            forget(directory)  # what a killed one left
            yield
        finally:
            forget(directory)
    finally:
        os.close(fd)


def remember(directory: Path, running: Running) -> Path:
    """Writes the state, and a file of exports for a shell elsewhere; returns the latter's path."""
    _write(directory / _STATE, json.dumps(asdict(running)))
    lines = (
        f"export BUCKETD_DSN={shlex.quote(running.dsn)}",
        f"export BUCKETD_REDIS_URL={shlex.quote(running.redis_url)}",
    )
    _write(directory / _ENV, "\n".join(lines) + "\n")
    return (directory / _ENV).resolve()


def forget(directory: Path) -> None:
    """Removes what `remember` wrote."""
    for name in (_STATE, _ENV):
        (directory / name).unlink(missing_ok=True)


def running(directory: Path = DIRECTORY) -> Running | None:
    """What runs in the folder now; None if nothing does."""
    with suppress(OSError, ValueError, TypeError):
        found = Running(**json.loads((directory / _STATE).read_text(encoding="utf-8")))
        fd = os.open(directory / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return None if _locks(fd, fcntl.LOCK_SH, 0) else found
        finally:
            os.close(fd)
    return None


def _locks(fd: int, kind: int, patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        else:
            return True


def _write(path: Path, text: str) -> None:
    """Whole or not at all, readable by the owner only."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as stream:
        stream.write(text)
    fresh.replace(path)
