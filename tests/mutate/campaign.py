"""One run of `make mutate`: a whole build whose tests must be green, then one build for each guard whose tests must not be."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.mutate import trial
from tests.mutate.build import copy_checkout, without
from tests.mutate.guard import Guard
from tests.mutate.verdict import Judgement, Verdict, judge

GUARD_S = 120.0  # a trial: of a build that hangs, no more is spent
WHOLE_S = 600.0


class NotGreen(Exception):
    """Tests that are to catch a mutation fail without any: what they say then proves nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one guard. `output`: the end of pytest's, for whoever has to find out why it was not caught."""

    guard: Guard
    judgement: Judgement
    seconds: float
    output: str

    @property
    def is_caught(self) -> bool:
        return self.judgement.verdict is Verdict.CAUGHT


class Campaign:
    """Builds live below `place`, which the caller removes; `jobs` trials run at a time."""

    def __init__(self, guards: Sequence[Guard], place: Path, *, jobs: int) -> None:
        self._guards = guards
        self._whole = place / "whole"
        self._place = place
        self._jobs = jobs

    def prepare(self) -> list[str]:
        """Makes the whole build and runs all named tests in it. Raises NotGreen, and Misplaced before that.

        Returns those that failed beside others and passed alone: on a busy machine they may blame a guard that is innocent.
        """
        copy_checkout(self._whole)
        for guard in self._guards:
            guard.taken_from((self._whole / guard.file).read_text(encoding="utf-8"))
        tests = list(dict.fromkeys(test for guard in self._guards for test in guard.tests))
        shaky: list[str] = []
        if self._jobs > 1:
            tests = shaky = list(self._not_green(tests, ["-n", str(self._jobs)])[0])
        wrong, output = self._not_green(tests, []) if tests else ({}, "")
        if wrong:
            told = "\n".join(f"{test}: {said}" for test, said in wrong.items())
            raise NotGreen(f"expected these tests to pass in a whole build:\n{told}\n\n{output}")
        return shaky

    def _not_green(self, tests: Sequence[str], arguments: Sequence[str]) -> tuple[dict[str, str], str]:
        """What those of these tests said that did not pass, and the end of pytest's output."""
        seen = trial.run(self._whole, tests, seconds=WHOLE_S, arguments=arguments)
        judged = {test: judge([test], seen.lines) for test in tests}
        wrong = {test: one.said for test, one in judged.items() if one.verdict is not Verdict.SURVIVED}
        return wrong, seen.output

    def run(self, told: Callable[[Result], None]) -> list[Result]:
        """One trial a guard, in the order of the guards; `told` hears of each as it ends."""

        def one(guard: Guard) -> Result:
            result = self._try(guard)
            told(result)
            return result

        with ThreadPoolExecutor(self._jobs) as threads:
            return list(threads.map(one, self._guards))

    def _try(self, guard: Guard) -> Result:
        began = monotonic()
        build = self._place / guard.name.replace("/", "-")
        without(guard, self._whole, build)
        try:
            seen = trial.run(build, guard.tests, seconds=GUARD_S)
        finally:
            shutil.rmtree(build, ignore_errors=True)
        return Result(guard, judge(guard.tests, seen.lines), monotonic() - began, seen.output)
