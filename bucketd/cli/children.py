"""The child processes of `bucketd up`: started, started again when they die, stopped in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LEASH = Path(__file__).with_name("leash.py")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
PROVEN_S = 60.0  # a child that lived this long starts again at once, with the first pause
POLL_S = 0.05

Tell = Callable[[str], None]


@dataclass(slots=True)
class Child:
    """One process that is to be there, and what became of it so far."""

    name: str
    command: Sequence[str]
    log: Path | None  # None: it writes to our own stderr
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    start_again_at: float = 0.0
    restarts: int = 0

    @property
    def pid(self) -> int | None:
        """Of the living process; None: it is dead."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None


@dataclass(slots=True)
class Children:
    """Schedulers and runners in our own process group. Call `tend` often; `stop` once."""

    environment: Mapping[str, str]
    tell: Tell
    members: list[Child] = field(default_factory=list)

    def add(self, name: str, *arguments: str, log: Path | None) -> None:
        """Starts `python *arguments` and keeps it running."""
        child = Child(name, (sys.executable, *arguments), log)
        self.members.append(child)
        self._start(child)

    def tend(self, now: float) -> None:
        """One look at all: notes who died, starts again whose pause is over. `now`: monotonic seconds."""
        for child in self.members:
            if child.process is not None and child.process.poll() is not None:
                self._note_death(child, now)
            if child.process is None and now >= child.start_again_at:
                child.restarts += 1
                self._start(child)

    def stop(self, groups: Iterable[tuple[str, float]], hurry: Callable[[], bool]) -> None:
        """SIGTERM to each group (a prefix of names, seconds of grace) after the one before it has ended; SIGKILL
        after that.

        `hurry` (a second Ctrl-C) ends all grace. Returns when no child is left.
        """
        for prefix, grace_s in groups:
            group = [child for child in self.members if child.name.startswith(prefix)]
            _signal(group, signal.SIGTERM)
            if not _ended(group, grace_s, hurry):
                self.tell(f"{prefix} did not stop within {grace_s:.0f} s: killed")
            _signal(group, signal.SIGKILL)
            _ended(group, 5.0, lambda: False)

    def _start(self, child: Child) -> None:
        child.started_at = time.monotonic()
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *child.command]
        output: IO[bytes] | None = child.log.open("ab") if child.log is not None else None
        try:
            child.process = subprocess.Popen(
                command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output or sys.stderr.fileno(),
                stderr=output,
            )
        finally:
            if output is not None:
                output.close()

    def _note_death(self, child: Child, now: float) -> None:
        assert child.process is not None
        code, child.process = child.process.returncode, None
        if now - child.started_at >= PROVEN_S:
            child.pause_s = FIRST_PAUSE_S
        child.start_again_at = now + child.pause_s
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        where = f"; its log: {child.log}" if child.log is not None else ""
        self.tell(f"{child.name} {how}, starts again in {child.pause_s:.0f} s{where}")
        child.pause_s = min(child.pause_s * 2, LONGEST_PAUSE_S)


def _signal(group: Iterable[Child], number: signal.Signals) -> None:
    for child in group:
        if child.pid is not None and child.process is not None:
            with suppress(ProcessLookupError):
                child.process.send_signal(number)


def _ended(group: Sequence[Child], grace_s: float, hurry: Callable[[], bool]) -> bool:
    end = time.monotonic() + grace_s
    while any(child.pid is not None for child in group):
        if time.monotonic() >= end or hurry():
            return False
        time.sleep(POLL_S)
    return True
