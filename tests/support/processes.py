"""`python -m bucketd ..` as child processes to kill, stop and wake. The fixture `processes` reaps them all."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bucketd.store.config import Settings
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """One child in a session of its own; everything it prints goes to `log`."""

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=dict(env),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; negative: the signal it died of; None: it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """All that it printed so far."""
        return self.log.read_text(errors="replace")

    def kill9(self) -> None:
        """SIGKILL, and reap."""
        self._send(signal.SIGKILL)
        self._popen.wait(10)

    def stop_signal(self) -> None:
        """SIGSTOP: it does nothing until `cont`, and nobody is told."""
        self._send(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; wait for the end with `wait_exit`."""
        self._send(signal.SIGTERM)

    async def wait_exit(self, timeout_s: float) -> int:
        """Exit code, as soon as there is one; AssertionError with the end of its log after `timeout_s`."""
        try:
            await wait_until(lambda: self.returncode is not None, timeout_s, f"the end of {self.name}")
        except AssertionError as error:
            error.add_note(self.tail())
            raise
        assert self.returncode is not None
        return self.returncode

    async def wait_output(self, text: str, timeout_s: float) -> None:
        """Until it printed `text`; AssertionError with the end of its log if it ends or takes longer."""
        try:
            what = f"{text!r} from {self.name}"
            await wait_until(lambda: text in self.output() or self.returncode is not None, timeout_s, what)
            assert text in self.output(), f"{self.name} ended with {self.returncode} before it printed {text!r}"
        except AssertionError as error:
            error.add_note(self.tail())
            raise

    def tail(self, lines: int = 30) -> str:
        """The end of its log, under a heading."""
        return "\n".join([f"--- {self.name} (exit {self.returncode}) ---", *self.output().splitlines()[-lines:]])

    def reap(self) -> None:
        """End it and all that it started, by force."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)

    def _send(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(number)


class Processes:
    """Starts them with the test's stores in the environment, and with nothing of the caller's BUCKETD_* variables."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._started: list[Process] = []

    def start(
        self, *arguments: str, name: str | None = None, env: Mapping[str, str] | None = None, under: Sequence[str] = ()
    ) -> Process:
        """`python -m bucketd *arguments`; `env` on top of `environment()`. Its log is called `name`. `under`: a command that becomes
        the one that follows it, as `ip netns exec` does."""
        name = f"{name or arguments[0]}-{len(self._started)}"
        command = [*under, sys.executable, "-m", "bucketd", *arguments]
        process = Process(name, command, {**self.environment(), **(env or {})}, self._directory / f"{name}.log")
        self._started.append(process)
        return process

    def environment(self) -> dict[str, str]:
        """What every child gets."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("BUCKETD_")}
        return {
            **inherited,
            "BUCKETD_DSN": self._settings.dsn.get_secret_value(),
            "BUCKETD_REDIS_URL": self._settings.redis_url.get_secret_value(),
            "BUCKETD_REDIS_PREFIX": self._settings.redis_prefix,
            "BUCKETD_EGRESS_ALLOW": self._settings.egress_allow,
        }

    def reap(self, *, show: bool = True) -> None:
        """End all; their logs' ends are printed, which pytest shows if the test failed."""
        for process in self._started:
            process.reap()
            if show:
                print(process.tail())
