"""The demo's servers and processes: started in order, killed on purpose, stopped in the end, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from bucketd.cli.children import LEASH
from bucketd.embedded import start_postgres, start_redis
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.errors import BucketdError
from bucketd.store.migrate import migrate

POLL_S = 0.02
STOP_S = 15.0
# Short times: the demo kills a node and a runner, and nobody wants to watch a lease of 10 s run out.
PACE = {
    "BUCKETD_LEASE_TTL_S": "4",
    "BUCKETD_LEASE_RENEW_S": "1",
    "BUCKETD_LEASE_MARGIN_S": "1",
    "BUCKETD_RUNNER_HEARTBEAT_S": "1",
    "BUCKETD_RUNNER_DEAD_AFTER_S": "5",
    "BUCKETD_RECLAIM_IDLE_S": "4",
    "BUCKETD_DRAIN_TIMEOUT_S": "5",
}


class DemoError(BucketdError):
    """The demo cannot go on; the text says what ended, and how its log ends."""


@dataclass(slots=True)
class Actor:
    """One process of the play."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    killed_at: float | None = None  # epoch seconds

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def log_tail(self, lines: int = 15) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Stage:
    """A directory with everything in it. Leaving the context ends all processes and removes it, unless `keep`."""

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.actors: list[Actor] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="bucketd-demo-"))
        self._stack.callback(self._tidy)
        # Started by root, Postgres runs as another user, who has to get through to its own directory.
        self.directory.chmod(0o711)
        return self

    def start_servers(self) -> None:
        """Postgres and Redis, migrated. Raises EmbeddedError where they cannot run."""
        postgres = self._stack.enter_context(start_postgres(self.directory / "postgres"))
        redis = self._stack.enter_context(start_redis(self.directory / "redis"))
        self._stack.callback(self.stop)
        self.dsn, self.redis_url = postgres.url, redis.url
        migrate(self.dsn)

    def start_target(self) -> str:
        """The recording target; returns its URL when it listens."""
        self.deliveries = self.directory / "deliveries.jsonl"
        read_fd, write_fd = os.pipe()
        actor = self._start(
            "target", ["-m", "bucketd.demo.target", str(self.deliveries)], stdin=subprocess.PIPE, stdout=write_fd
        )
        os.close(write_fd)
        with os.fdopen(read_fd) as stream:
            port = stream.readline().strip()
        if not port:
            raise DemoError(f"expected the target's port, got nothing; its log ends with:\n{actor.log_tail()}")
        return f"http://127.0.0.1:{port}/hook"

    def start_scheduler(self, name: str) -> Actor:
        """One scheduler node."""
        return self._start(name, ["-m", "bucketd", "scheduler"])

    def start_runner(self, name: str) -> Actor:
        """One runner."""
        return self._start(name, ["-m", "bucketd.runner"])

    def kill(self, actor: Actor) -> None:
        """SIGKILL, by pid: no goodbye, no hand-over."""
        os.kill(actor.pid, signal.SIGKILL)
        actor.process.wait(STOP_S)
        actor.killed_at = time.time()

    def check(self) -> None:
        """Raises DemoError if a process ended that nobody killed."""
        for actor in self.actors:
            if not actor.alive and actor.killed_at is None:
                code = actor.process.returncode
                raise DemoError(
                    f"{actor.name} ended by itself with code {code}; its log ends with:\n{actor.log_tail()}"
                )

    def stop(self) -> None:
        """SIGTERM to schedulers, then runners, then the target, each group awaited; SIGKILL to the rest after 15 s."""
        for prefix in ("scheduler", "runner", ""):
            self._stop([actor for actor in self.actors if actor.name.startswith(prefix) and actor.alive])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
    ) -> Actor:
        log = self.directory / f"{name.replace(' ', '-')}.log"
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), sys.executable, *arguments]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=stdin,
                stdout=stdout or output,
                stderr=output,
                start_new_session=True,
            )
        actor = Actor(name, process, log)
        self.actors.append(actor)
        return actor

    def _environment(self) -> Mapping[str, str]:
        """Nothing of the caller's own configuration may get in: the demo must not touch somebody's real servers."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("BUCKETD_")}
        ours = {"BUCKETD_DSN": self.dsn, "BUCKETD_REDIS_URL": self.redis_url, "BUCKETD_EGRESS_ALLOW": LOOPBACK}
        return {**inherited, **PACE, **ours}

    def _stop(self, actors: Sequence[Actor]) -> None:
        end = time.monotonic() + STOP_S
        for actor in actors:
            actor.killed_at = time.time()  # on purpose, too
            actor.process.terminate()
        while any(actor.alive for actor in actors) and time.monotonic() < end:
            time.sleep(POLL_S)
        for actor in actors:
            actor.process.kill()
            actor.process.wait()
            if actor.process.stdin is not None:
                actor.process.stdin.close()

    def _tidy(self) -> None:
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
