"""Where schedulers and runners spend their time: by py-spy where it is on PATH, else by cProfile (which slows them much more)."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

KINDS = ("scheduler", "runner")
STOP_S = 30.0
SAMPLES_PER_S = 200


class Profiler:
    """Writes into `directory`: `runner-1.txt` (py-spy, collapsed stacks, of the clock) or `.pstats` (cProfile, whole life)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory.resolve()
        self._spy = shutil.which("py-spy")
        self._running: list[subprocess.Popen[bytes]] = []

    def python_options(self, name: str) -> list[str]:
        """What stands before `-m module` on the command line of a profiled process."""
        return [] if self._spy else ["-m", "cProfile", "-o", str(self._path(name, "pstats"))]

    def begin(self, processes: Mapping[str, int]) -> None:
        """Watches these processes (ids by name) from now on."""
        for name, pid in processes.items():
            if self._spy and name.startswith(KINDS):
                output = ["--output", str(self._path(name, "txt")), "--format", "raw"]
                command = [
                    self._spy,
                    "record",
                    "--pid",
                    str(pid),
                    "--rate",
                    str(SAMPLES_PER_S),
                    "--duration",
                    "unlimited",
                    *output,
                ]
                self._running.append(
                    subprocess.Popen(
                        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                    )
                )

    def end(self) -> None:
        """Stops watching; the files are written when this returns."""
        for process in self._running:
            process.send_signal(signal.SIGINT)
        for process in self._running:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _path(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name.replace(' ', '-')}.{suffix}"
