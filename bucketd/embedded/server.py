"""A server process under a guard: start it, know its pid, stop it. See postgres.py and redis.py for the rest."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bucketd.embedded import guard
from bucketd.store.errors import BucketdError

POLL_S = 0.02
READY_S = 120.0  # crash recovery of a large data directory takes its time; a server that exits is noticed at once
GRACE_S = 10.0


class EmbeddedError(BucketdError):
    """An embedded server cannot be started; the text says what to do."""

    exit_code = 4


@dataclass(frozen=True)
class Account:
    """The user a server runs as, where that is not our own."""

    uid: int
    gid: int
    rights: tuple[int, ...] = ()  # what it keeps of root's, see guard.py

    def become(self) -> None:
        """In a child, before it becomes another program."""
        guard.drop_root(self.uid, self.gid, self.rights)


class Server:
    """A running server. `url` works on this machine only, and may carry a password: do not print it."""

    def __init__(self, name: str, url: str, pid: int, port: int, process: "Guard") -> None:
        self.name = name
        self.url = url
        self.pid = pid
        self.port = port
        self._guard = process

    def running(self) -> bool:
        """Whether the server process still lives."""
        return self._guard.alive()

    def stop(self) -> None:
        """Stop gracefully, by force after 10 s; returns when the process is gone. Again: nothing happens."""
        self._guard.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.name} pid {self.pid}>"


class Guard:
    """Our handle on a guard process (guard.py): its life is the server's."""

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        *,
        log: Path,
        lock_fd: int,
        stop_signal: str,
        account: Account | None = None,
    ) -> None:
        self.directory = directory
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        read_fd, self._lifeline_fd = os.pipe()
        report_fd, report_write_fd = os.pipe()
        plan = {
            "command": list(command),
            "lifeline_fd": read_fd,
            "lock_fd": lock_fd,
            "report_fd": report_write_fd,
            "stop_signal": stop_signal,
            "grace_s": GRACE_S,
            "uid": account.uid if account else None,
            "gid": account.gid if account else None,
            "rights": account.rights if account else (),
        }
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, json.dumps(plan)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(read_fd, lock_fd, report_write_fd),
                    start_new_session=True,  # a Ctrl-C is for the owner, which stops the server in its turn
                    cwd=directory,
                )
        except BaseException:
            os.close(self._lifeline_fd)
            raise
        finally:
            os.close(read_fd)
            os.close(report_write_fd)
        with os.fdopen(report_fd) as report:
            line = report.readline()
        self.pid = int(line) if line else 0

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self._lifeline_fd >= 0:
            os.close(self._lifeline_fd)
            self._lifeline_fd = -1
        try:
            self._process.wait(3 * GRACE_S + 5)  # the guard itself goes from the stop signal to SIGKILL in 3 x GRACE_S
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_ready(self, name: str, ready: Callable[[], bool]) -> None:
        """Until `ready()`; EmbeddedError with the end of the log if the server exits first or takes over 120 s."""
        end = time.monotonic() + READY_S
        while not ready():
            if not self.alive():
                self.stop()
                raise EmbeddedError(f"{name} did not start; its log {self.log} ends with:\n{self.log_tail()}")
            if time.monotonic() > end:
                self.stop()
                raise EmbeddedError(f"{name} in {self.directory} was not ready after {READY_S:.0f} s; see {self.log}")
            time.sleep(POLL_S)

    def log_tail(self, lines: int = 12) -> str:
        """The last lines that this start wrote."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])


def lock(directory: Path, name: str) -> int:
    """The directory's lock as an open descriptor. EmbeddedError if a server of a living process holds it.

    A guard whose owner died still needs a moment to stop its server: that one is waited for.
    """
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode().strip()
            patience_s = 2.0 if _exists(owner) else 3 * GRACE_S + 5
            if time.monotonic() - begun > patience_s:
                os.close(fd)
                raise EmbeddedError(
                    f"{name} in {directory} is already running, started by process {owner or 'unknown'}; "
                    "stop that process, or choose another directory"
                ) from None
            time.sleep(POLL_S)
        else:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            return fd


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _exists(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
