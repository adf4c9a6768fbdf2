"""Runs named tests in a build, with this interpreter and nothing of the checkout, for a bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.verdict import Line
from tests.mutate.witness import FILE_VARIABLE, ROOT_VARIABLE

WITNESS = "witness.jsonl"  # beside the build
OUTPUT_LINES = 40


@dataclass(frozen=True, slots=True)
class Trial:
    """What the witness saw, and the end of pytest's own output. `lines` are what counts."""

    lines: list[Line]
    output: str


def run(build: Path, tests: Sequence[str], *, seconds: float, arguments: Sequence[str] = ()) -> Trial:
    """Node ids of the checkout, run in the build. What is not over after `seconds` is killed, servers and all."""
    witness = build.parent / f"{build.name}.{WITNESS}"
    witness.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutate.witness", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        [*command, *tests], cwd=build, env=environment(build, witness), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # servers and child processes hang on its life and end with it
        output, _ = process.communicate()
        output += f"\nkilled after {seconds:g} s"
    return Trial(read(witness), "\n".join(output.splitlines()[-OUTPUT_LINES:]))


def environment(build: Path, witness: Path) -> dict[str, str]:
    """The caller's, without what would lead elsewhere; the build goes before the site-packages, whose links it hides."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "BUCKETD_"))}
    return {
        **kept,
        "PYTHONPATH": str(build),
        ROOT_VARIABLE: str(build.resolve()),
        FILE_VARIABLE: str(witness),
    }


def read(witness: Path) -> list[Line]:
    """The lines of a witness; none if it never came to a test."""
    if not witness.exists():
        return []
    return [Line(**json.loads(text)) for text in witness.read_text(encoding="utf-8").splitlines()]
