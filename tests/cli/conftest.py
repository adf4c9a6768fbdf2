"""The command line in this process, on this test's stores, in an empty working directory."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bucketd.cli import main
from bucketd.store.config import Settings


@dataclass(frozen=True)
class Result:
    """What one invocation left: its exit code, and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """Call it with arguments; `done` is the same for a command that must succeed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        # Workers of a parallel run have a width of their own; here a table is as wide as in any pipe.
        monkeypatch.delenv("COLUMNS", raising=False)

    def __call__(self, *arguments: str, stdin: str = "") -> Result:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        self._monkeypatch.setattr("sys.stdin", stream)
        self._capsys.readouterr()
        code = main(arguments)
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def done(self, *arguments: str, stdin: str = "") -> Result:
        result = self(*arguments, stdin=stdin)
        assert result.code == 0, f"{arguments}: exit {result.code}\n{result.out}\n{result.err}"
        return result

    def process(self, *arguments: str) -> Result:
        """The same as a process of its own: for commands that take the signals of theirs."""
        command = [sys.executable, "-m", "bucketd", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No BUCKETD_* variable, an empty working directory."""
    for name in [name for name in os.environ if name.startswith("BUCKETD_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bare(nowhere: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line without any store."""
    return Cli(capsys, monkeypatch)


@pytest.fixture
def cli(bare: Cli, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line on this test's stores."""
    monkeypatch.setenv("BUCKETD_DSN", settings.dsn.get_secret_value())
    monkeypatch.setenv("BUCKETD_REDIS_URL", settings.redis_url.get_secret_value())
    monkeypatch.setenv("BUCKETD_REDIS_PREFIX", settings.redis_prefix)
    return bare
