"""A pytest plugin of trial runs: it writes how each test ended, and by what, and refuses to test anything but the build.

Loaded with `-p tests.mutate.witness`. An editable install points at the checkout, so what was imported is looked at, not assumed.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT_VARIABLE, FILE_VARIABLE = "MUTATE_ROOT", "MUTATE_WITNESS"
WATCHED = ("bucketd", "bucketd.runner", "bucketd.store", "tests")


def pytest_sessionstart() -> None:
    """Ends the session if anything of ours was imported from elsewhere."""
    root = Path(os.environ[ROOT_VARIABLE])
    for name in WATCHED:
        place = Path(str(importlib.import_module(name).__file__)).resolve()
        if not place.is_relative_to(root):
            pytest.exit(f"expected {name} of {root}, got {place}", returncode=pytest.ExitCode.INTERNAL_ERROR)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A line a phase that matters: each call, and each set-up or end that failed."""
    report = yield
    if report.when == "call" or report.failed:
        line = {
            "test": item.nodeid,
            "phase": report.when,
            "outcome": report.outcome,
            "by_assertion": call.excinfo is not None and is_assertion(call.excinfo.value),
            "error": call.excinfo.exconly(tryshort=True)[:300] if call.excinfo is not None else "",
        }
        with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:  # several workers append whole lines
            file.write(json.dumps(line) + "\n")
    return report


def is_assertion(error: BaseException) -> bool:
    """Whether a test said no, rather than broke down. A test that hangs has said nothing: pytest-timeout's end is none."""
    if isinstance(error, pytest.fail.Exception):
        return not str(error).startswith("Timeout")
    return isinstance(error, AssertionError)
