"""systemd's units: valid by systemd itself, hardened, and in accord with what the processes do; and the words that processes send it."""

import asyncio
import configparser
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from bucketd.cli.exits import BAD_INPUT
from bucketd.runner.watchdog import EXIT_CODE
from bucketd.store.config import Settings
from bucketd.store.supervisor import Supervisor
from tests.ops.manifests import OPS
from tests.ops.runbook import commands
from tests.support.processes import Processes
from tests.support.waiting import wait_until

UNITS = ["bucketd-scheduler.service", "bucketd-runner.service"]
PROGRAM = "/opt/bucketd/bin/bucketd"
EXPOSED_MOST = 20  # tenths; 96 is a unit without any hardening


def directives(unit: str) -> configparser.SectionProxy:
    """The section [Service]; of a key that stands twice the last value."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(OPS / "systemd" / unit, encoding="utf-8")
    return parser["Service"]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        assert not os.environ.get("CI"), "systemd-analyze (Debian: systemd) must be there in CI"
        pytest.skip("needs systemd-analyze (Debian: systemd)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def copied(unit: str, directory: Path, *, more: str = "") -> Path:
    """The unit with a program that this machine has."""
    text = (OPS / "systemd" / unit).read_text(encoding="utf-8")
    assert f"ExecStart={PROGRAM} " in text
    path = directory / unit
    path.write_text(text.replace(PROGRAM, "/bin/true").replace("[Service]\n", f"[Service]\n{more}"), encoding="utf-8")
    return path


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_valid_and_hardened(unit: str, tmp_path: Path) -> None:
    path = copied(unit, tmp_path)
    found = analyze("verify", str(path))
    assert (found.returncode, found.stderr) == (0, "")
    secure = analyze("security", "--offline=true", f"--threshold={EXPOSED_MOST}", "--no-pager", str(path))
    assert secure.returncode == 0, secure.stdout[-300:]


def test_a_wrong_unit_is_seen(tmp_path: Path) -> None:
    assert "WatchdogSecs" in analyze("verify", str(copied(UNITS[0], tmp_path, more="WatchdogSecs=30\n"))).stderr
    weak = tmp_path / "weak.service"
    weak.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    assert analyze("security", "--offline=true", f"--threshold={EXPOSED_MOST}", "--no-pager", str(weak)).returncode


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_in_accord_with_its_process(unit: str) -> None:
    service, settings = directives(unit), Settings.load({})
    command = service["ExecStart"].replace(PROGRAM, "bucketd")
    assert list(commands(f"`{command}`")) == [(f"`{command}`", "")]
    assert service["Type"] == "notify"
    assert service["Restart"] == "always"  # after a watchdog of either kind, too: 70 is not among those that ..
    assert service["RestartPreventExitStatus"].split() == [str(BAD_INPUT)]  # .. end it for good
    assert EXIT_CODE == 70
    # What ends last when it is told to stop: calls in flight, or a statement that plans a minute.
    slowest_s = settings.drain_timeout_s + 10 if "runner" in unit else 30
    assert float(service["TimeoutStopSec"]) > slowest_s
    assert float(service["WatchdogSec"]) > 10


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that a supervisor listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(listening: socket.socket) -> list[str]:
    """All words since the last time."""
    words = []
    while True:
        try:
            words.append(listening.recv(1_000).decode())
        except BlockingIOError:
            return words


async def test_processes_tell_their_supervisor(processes: Processes, systemd: socket.socket, tmp_path: Path) -> None:
    """Ready when the work begins, alive as often as was asked, nothing while they stand still, stopping at SIGTERM."""
    for name in ("scheduler", "runner"):
        asked = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        process = processes.start(name, env=asked)
        words: list[str] = []

        def said(count: int, word: str, words: list[str] = words) -> bool:
            words.extend(heard(systemd))
            return words.count(word) >= count

        await wait_until(lambda said=said: said(1, "READY=1") and said(3, "WATCHDOG=1"), 20, f"{name}'s words")  # type: ignore[misc]
        assert words.count("READY=1") == 1
        process.stop_signal()
        await wait_until(lambda pid=process.pid: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 5, "its stop")  # type: ignore[misc]
        heard(systemd)
        await asyncio.sleep(0.4)  # longer than it may be silent
        assert heard(systemd) == []
        process.cont()
        words.clear()
        await wait_until(lambda said=said: said(1, "WATCHDOG=1"), 10, f"{name} alive again")  # type: ignore[misc]
        process.terminate()
        await process.wait_exit(20)
        assert said(1, "STOPPING=1")


async def test_without_a_supervisor_nothing_is_said(systemd: socket.socket, tmp_path: Path) -> None:
    """Nor for a process that the word was not meant for, nor to a socket that is not there."""
    address = str(tmp_path / "notify")
    async with asyncio.timeout(5):  # each of these returns at once
        await Supervisor.of({}, 1).keep_alive()
        await Supervisor.of({"NOTIFY_SOCKET": address}, 1).keep_alive()
        await Supervisor.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "2"}, 1).keep_alive()
        await Supervisor.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "x"}, 1).keep_alive()
    Supervisor.of({"NOTIFY_SOCKET": address + "-gone"}, 1).ready()
    assert heard(systemd) == []
    Supervisor.of({"NOTIFY_SOCKET": address}, 1).ready()
    assert heard(systemd) == ["READY=1"]
