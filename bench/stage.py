"""The bench's servers and processes in a temporary directory; leaving the context ends and removes them all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.load import Load
from bench.profiler import KINDS, Profiler
from bench.target import Deliveries
from bucketd.cli.children import LEASH
from bucketd.embedded import start_postgres, start_redis
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.migrate import migrate

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 30.0
# What an operator of such a machine would set. Nothing of it weakens durability. Commit timestamps tell the instant at which
# the last result was durable; durations and statistics of statements cost a few microseconds a batch.
POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "wal_compression": "off",  # pglz would cost more than the few full pages of new rows
    "wal_buffers": "64MB",
    "checkpoint_timeout": "15min",
    "track_commit_timestamp": "on",
    "log_line_prefix": "",
    "log_parameter_max_length": "0",
}


class Stage:
    """A directory with everything in it. `postgres`: settings beside our own; `environment`: of schedulers and runners; `directory`:
    one of the caller's, with servers that were used before, which stays."""

    def __init__(
        self,
        *,
        keep: bool,
        profiler: Profiler | None,
        postgres: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.profiler = profiler
        self._keep = keep
        self._postgres = {**POSTGRES, **postgres}
        self._more = dict(environment or {})
        self._given = directory
        self._stack = ExitStack()
        self._started: list[tuple[str, subprocess.Popen[str]]] = []

    def __enter__(self) -> Self:
        self.directory = self._given or Path(tempfile.mkdtemp(prefix="bucketd-bench-"))
        self._stack.callback(self._tidy)
        self.directory.chmod(0o711)  # started by root, Postgres runs as another user, who must get through
        try:
            self.postgres = self._stack.enter_context(
                start_postgres(self.directory / "postgres", settings=self._postgres)
            )
            self.redis = self._stack.enter_context(start_redis(self.directory / "redis"))
            self._stack.callback(self.stop)
            migrate(self.postgres.url)
            self._target = self._start("target", ["-m", "bench.target"], answers=True)
            self.target_url = f"http://127.0.0.1:{self._line()}/runs"
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def processes(self) -> dict[str, int]:
        """Process ids of our own by name: `scheduler 1`, `runner 1`, `target`."""
        return {name: process.pid for name, process in self._started}

    def start_scheduler(self, number: int) -> None:
        """One scheduler node."""
        self._start(f"scheduler {number}", ["-m", "bucketd", "scheduler"])

    def start_runner(self, number: int) -> None:
        """One runner."""
        self._start(f"runner {number}", ["-m", "bucketd.runner"])

    def start_arrivals(self) -> tuple[int, int]:
        """The servers of bench.arrivals: ports of the prompt one and of the one that hangs."""
        self._arrivals = self._start("target of arrivals", ["-m", "bench.arrivals"], answers=True)
        prompt, hanging = self._line(self._arrivals).split()
        return int(prompt), int(hanging)

    def arrivals(self) -> list[tuple[str, str, float, float]]:
        """What came to the prompt one since the last time: tenant, path, due (epoch seconds), lateness (s)."""
        found: list[tuple[str, str, float, float]] = json.loads(self._ask("read", self._arrivals))
        return found

    def runs(self) -> list[tuple[str, float, float, int]]:
        """The same: schedule, due (epoch seconds), lateness (s), attempt; of batches too."""
        found: list[tuple[str, float, float, int]] = json.loads(self._ask("runs", self._arrivals))
        return found

    def end(self, name: str, number: signal.Signals) -> float:
        """Sends a signal that ends a process, and waits for its end; seconds that it took."""
        (process,) = [process for known, process in self._started if known == name]
        self._started = [(known, other) for known, other in self._started if other is not process]
        begun = time.monotonic()
        process.send_signal(number)
        process.wait(STOP_S)
        return time.monotonic() - begun

    def check(self) -> None:
        """Raises RuntimeError if a process has ended."""
        for name, process in self._started:
            if process.poll() is not None:
                raise RuntimeError(
                    f"{name} ended with code {process.returncode}; its log ends with:\n{self.log_tail(name)}"
                )

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The end of what a process wrote."""
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-lines:])

    def count(self) -> int:
        """Runs that the target has got so far."""
        return int(self._ask("count"))

    def verify(self, load: Load, offset_s: float) -> Deliveries:
        """What the target has got, each run looked at."""
        found: dict[str, Any] = json.loads(self._ask(f"verify {load.fires} {load.due_s} {load.crons} {offset_s}"))
        return Deliveries(**found)

    def stop(self) -> None:
        """Ends our processes, schedulers first, each awaited; by force after 30 s."""
        if self.profiler:
            self.profiler.end()
        for kind in ("scheduler", "runner", "target"):
            group = [process for name, process in self._started if name.startswith(kind)]
            for process in group:
                if process.stdin is not None:
                    process.stdin.close()
                process.terminate()
            for process in group:
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdout is not None:
                    process.stdout.close()
        self._started.clear()

    def _ask(self, command: str, of: subprocess.Popen[str] | None = None) -> str:
        process = of or self._target
        assert process.stdin is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return self._line(process)

    def _line(self, of: subprocess.Popen[str] | None = None) -> str:
        process = of or self._target
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(
                f"expected an answer from the target, got none; its log ends with:\n{self.log_tail('target')}"
            )
        return line

    def _start(self, name: str, arguments: Sequence[str], *, answers: bool = False) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE if answers else None
        if self.profiler and name.startswith(KINDS):
            arguments = [*self.profiler.python_options(name), *arguments]
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), sys.executable, *arguments]
        with self._log(name).open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                cwd=ROOT,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._started.append((name, process))
        return process

    def _log(self, name: str) -> Path:
        return self.directory / f"{name.replace(' ', '-')}.log"

    def _environment(self) -> dict[str, str]:
        """Defaults, whatever the caller has set, but that runners may call the target on this machine."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("BUCKETD_")}
        ours = {"BUCKETD_DSN": self.postgres.url, "BUCKETD_REDIS_URL": self.redis.url, "BUCKETD_EGRESS_ALLOW": LOOPBACK}
        return {**inherited, **ours, **self._more}

    def _tidy(self) -> None:
        if self._given:
            return
        if self._keep:
            print(f"kept: {self.directory}", file=sys.stderr)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)


def wait_until(condition: Any, timeout_s: float, what: str, stage: Stage, *, pause_s: float = 0.05) -> None:
    """Until `condition()`; RuntimeError after `timeout_s`, or if a process has ended."""
    end = time.monotonic() + timeout_s
    while not condition():
        stage.check()
        if time.monotonic() > end:
            raise RuntimeError(f"waited {timeout_s:.0f} s for {what}, in vain; use --keep to look at the logs")
        time.sleep(pause_s)
