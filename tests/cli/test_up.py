"""`bucketd up` as a process, with embedded servers: what it starts, how it is found, and that nothing of it stays."""

import asyncio
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from bucketd.cli import state
from bucketd.cli.children import Children
from bucketd.cli.session import Session
from bucketd.cli.up import environment
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from bucketd.store.errors import Conflict
from tests.cli.conftest import Cli
from tests.support.target import Target
from tests.support.waiting import wait_until


def wait(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    return asyncio.run(wait_until(condition, timeout_s, what))


class Up:
    """One `bucketd up` on a terminal of its own, in the working directory."""

    def __init__(self, *arguments: str, terminal: bool) -> None:
        self.output = ""
        self._ours, theirs = pty.openpty() if terminal else os.pipe()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        command = [sys.executable, "-m", "bucketd", "up", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                content = os.read(self._ours, 65_536)
            except OSError:  # how a terminal says that nobody writes any more
                content = b""
            if not content:
                os.close(self._ours)
                return
            self.output += content.decode(errors="replace")

    def tree(self) -> list[psutil.Process]:
        """All processes below it, the servers' included."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def child(self, words: str) -> psutil.Process | None:
        """The living child whose command line has these words."""
        for process in self.tree():
            try:
                if words in " ".join(process.cmdline()):
                    return process
            except psutil.NoSuchProcess:
                continue
        return None

    def ended(self) -> int:
        """Its exit code, when it and all its output have ended."""
        code = self.process.wait(30)
        self._reader.join(30)
        return code


@pytest.fixture
def ups(nowhere: None) -> Iterator[Callable[..., Up]]:
    """Starts `up`; whatever a failed test leaves is killed."""
    started: list[Up] = []

    def start(*arguments: str, terminal: bool = False) -> Up:
        started.append(Up(*arguments, terminal=terminal))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            os.killpg(up.process.pid, signal.SIGKILL)
        up.ended()


def _gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_life_of_up(ups: Callable[..., Up], bare: Cli, target: Target) -> None:
    up = ups("--plain")
    wait(lambda: "up: 1 scheduler, 1 runner" in up.output, 40, "the start of up")
    assert oct(Path(".bucketd/state.json").stat().st_mode)[-3:] == "600"
    secret = re.search(r"redis://:(\w+)@", Path(".bucketd/env").read_text())
    assert secret is not None

    bare.done("target", "put", "hook", target.url)
    bare.done("schedule", "put", "tick", "--target", "hook", "--every", "1s", "--overlap", "allow")
    wait(lambda: len(target.runs) >= 2, 15, "two runs at the target")
    second = bare.process("up", "--plain")
    assert second.code == 5
    assert "another `bucketd up` runs in" in second.err

    runner = up.child("bucketd.runner")
    assert runner is not None
    runner.kill()
    wait(lambda: "runner-1 was ended by SIGKILL, starts again in 1 s" in up.output, 5, "the note of its death")
    before = len(target.runs)
    wait(lambda: len(target.runs) > before, 20, "a run by the next runner")

    whole = up.tree()
    assert len(whole) >= 6  # scheduler, runner, two guards, two servers
    up.process.terminate()
    assert up.ended() == 0
    assert _gone(whole)
    assert not Path(".bucketd/state.json").exists()
    assert up.output.rstrip().endswith("stopped")
    assert secret[1] not in up.output
    assert bare("schedule", "list").code == 2

    # What a killed one leaves: nothing that runs, a state file that nobody believes, and the data.
    again = ups("--schedulers", "2", terminal=True)
    wait(lambda: "node B" in again.output, 40, "the panel with two owners")
    assert "3 of 3 processes run" in again.output
    assert sorted(path.name for path in Path(".bucketd/logs").iterdir()) == [
        "runner-1.log",
        "scheduler-1.log",
        "scheduler-2.log",
    ]
    assert [line["name"] for line in bare.done("schedule", "list", "--json").lines] == ["tick"]
    whole = again.tree()
    again.process.kill()
    again.process.wait(10)
    wait(lambda: _gone(whole), 20, "the end of all that it started")
    assert Path(".bucketd/state.json").exists()
    assert bare("schedule", "list").code == 2


def test_state_is_believed_while_its_writer_lives(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    assert state.running(folder) is None
    with state.occupied(folder):
        assert state.running(folder) is None
        written = state.Running("postgresql://a", "redis://b", 1)
        state.remember(folder, written)
        assert state.running(folder) == written
        with pytest.raises(Conflict, match="another `bucketd up`"), state.occupied(folder):
            pass
        assert state.running(folder) == written
        shutil.copy(folder / "state.json", tmp_path / "kept.json")
    assert state.running(folder) is None
    shutil.copy(tmp_path / "kept.json", folder / "state.json")
    assert state.running(folder) is None, "the lock is free: its writer is dead"


def test_children_that_die_start_again_with_growing_pauses(tmp_path: Path) -> None:
    told: list[str] = []
    children = Children(os.environ, told.append)
    children.add("worker-1", "-c", "raise SystemExit(3)", log=tmp_path / "log")
    child = children.members[0]
    now = time.monotonic()
    for pause_s in (1, 2, 4):
        wait(lambda: child.pid is None, 10, "its end")
        children.tend(now)
        assert told[-1] == f"worker-1 ended with code 3, starts again in {pause_s} s; its log: {tmp_path / 'log'}"
        children.tend(now + pause_s - 0.1)
        assert child.process is None
        now += pause_s
        children.tend(now)
        assert child.process is not None
    assert child.restarts == 3
    children.stop((("worker", 5.0),), lambda: False)


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    told: list[str] = []
    children = Children(os.environ, told.append)
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    log = Path(os.devnull)
    children.add("worker-1", "-c", script, log=log)
    child = children.members[0]
    wait(lambda: _is_deaf(child.pid), 10, "the child's handler")
    children.stop((("worker", 0.3),), lambda: False)
    assert child.pid is None
    assert told == ["worker did not stop within 0 s: killed"]


def _is_deaf(pid: int | None) -> bool:
    """Whether it ignores SIGTERM by now."""
    found = re.search(r"SigIgn:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    return bool(found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_runners_may_call_this_machine_unless_a_list_is_set(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list is one, too."""
    assert environment(Session(), Settings.load())["BUCKETD_EGRESS_ALLOW"] == LOOPBACK
    for given in ("", "10.0.0.0/8"):
        monkeypatch.setenv("BUCKETD_EGRESS_ALLOW", given)
        assert environment(Session(), Settings.load())["BUCKETD_EGRESS_ALLOW"] == given


def test_half_a_pair_of_stores_is_refused(bare: Cli) -> None:
    result = bare.process("--dsn", "postgresql://127.0.0.1:1/d", "up")
    assert result.code == 2
    assert "no BUCKETD_REDIS_URL" in result.err
