"""What a trial proves. Pure: lines of the witness in, a verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Line(NamedTuple):
    """How one phase of one test ended, as witness.py writes it."""

    test: str
    phase: str  # setup, call, teardown
    outcome: str  # passed, failed, skipped
    by_assertion: bool
    error: str


class Verdict(Enum):
    """Only `CAUGHT` is well."""

    CAUGHT = "caught"
    SURVIVED = "NOT caught"  # a named test is green without the guard
    CRASHED = "NOT caught: crashed"  # red, but not because a test found anything
    ABSENT = "NOT caught: not run"  # no result: skipped, not collected, or the time was over


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the test and the words that decided it."""

    verdict: Verdict
    test: str
    said: str


def judge(tests: Sequence[str], lines: Sequence[Line]) -> Judgement:
    """The worst of the named tests decides; of a caught guard, what its first test said."""
    judgements = [_of_test(test, [line for line in lines if is_case(line.test, test)]) for test in tests]
    return next((one for one in judgements if one.verdict is not Verdict.CAUGHT), judgements[0])


def is_case(nodeid: str, test: str) -> bool:
    """Whether a node id is that test, or one of its cases."""
    return nodeid == test or nodeid.startswith(f"{test}[")


def _of_test(test: str, lines: Sequence[Line]) -> Judgement:
    failed = [line for line in lines if line.outcome == "failed"]
    for line in failed:
        if line.phase == "call" and line.by_assertion:
            return Judgement(Verdict.CAUGHT, line.test, line.error)
    if failed:
        return Judgement(Verdict.CRASHED, failed[0].test, failed[0].error)
    if any(line.outcome == "passed" for line in lines):
        return Judgement(Verdict.SURVIVED, test, "it passes without the guard")
    return Judgement(Verdict.ABSENT, test, "it gave no result")
