"""The tool itself: what counts as caught, and that it tells a guard that nobody would miss."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutate import trial
from tests.mutate.__main__ import CAUGHT, NOT_CAUGHT, NOTHING_SAID, main
from tests.mutate.build import ROOT
from tests.mutate.guard import Guard, Misplaced
from tests.mutate.guards import GUARDS
from tests.mutate.verdict import Line, Verdict, judge
from tests.mutate.witness import is_assertion

SPENT = replace(
    next(guard for guard in GUARDS if guard.name == "spent-claims"),
    tests=("tests/runner/test_parts.py::test_a_claim_is_spent_with_its_last_runs",),  # needs no server
)
HARMLESS = replace(SPENT, name="spent-claims/harmless", instead=SPENT.text + "  # the same")
checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


@pytest.mark.long
@checkout
def test_it_reports_a_survivor_and_leaves_the_checkout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = (ROOT / SPENT.file).read_bytes()
    assert main(["--json", "--jobs", "1"], [HARMLESS, SPENT]) == NOT_CAUGHT
    survivor, caught = json.loads(capsys.readouterr().out)
    assert (survivor["guard"], survivor["verdict"]) == ("spent-claims/harmless", "survived")
    assert (caught["guard"], caught["verdict"], caught["test"]) == ("spent-claims", "caught", SPENT.tests[0])
    assert "assert" in caught["said"]
    assert (ROOT / SPENT.file).read_bytes() == before


@pytest.mark.long
@checkout
def test_without_green_tests_it_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    absent = replace(SPENT, tests=("tests/runner/test_parts.py::test_that_is_not_there",))
    assert main(["--jobs", "1"], [absent]) == NOTHING_SAID
    assert "test_that_is_not_there: it gave no result" in capsys.readouterr().err


@checkout
def test_a_switch_that_does_not_fit_is_said_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    moved = replace(SPENT, text=SPENT.text + " moved")
    assert main([], [SPENT, moved]) == NOTHING_SAID
    assert "expected its text once in runner/run.py, found it 0 times" in capsys.readouterr().err


def test_the_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "early"]) == CAUGHT
    assert capsys.readouterr().out.startswith("early ")


def test_a_build_that_would_test_the_checkout_is_refused(tmp_path: Path) -> None:
    """An editable install finds `bucketd` in the checkout, wherever one stands."""
    build = tmp_path / "torn"
    shutil.copytree(ROOT / "tests", build / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    seen = trial.run(build, SPENT.tests, seconds=60)
    assert seen.lines == []
    assert f"expected bucketd of {build.resolve()}, got /" in seen.output


def test_what_hangs_is_ended_and_an_earlier_trial_does_not_count(tmp_path: Path) -> None:
    build = tmp_path / "slow"
    (tmp_path / f"slow.{trial.WITNESS}").write_text(json.dumps(passed("tests")._asdict()) + "\n")
    (build / "tests").mkdir(parents=True)
    (build / "tests" / "__init__.py").write_text("import threading\nthreading.Event().wait()\n")
    seen = trial.run(build, ["tests"], seconds=1)
    assert seen.lines == []
    assert seen.output.endswith("killed after 1 s")


def test_a_text_that_stands_twice_is_misplaced() -> None:
    guard = Guard("a", "f", "x  # guard: a", "", "", "", ())
    assert guard.taken_from("1 x  # guard: a\n") == "1 \n"
    with pytest.raises(Misplaced, match="found it 2 times"):
        guard.taken_from("x  # guard: a\nx  # guard: a\n")
    with pytest.raises(ValueError, match="expected the marker 'guard: b'"):
        Guard("b", "f", "x  # guard: a", "", "", "", ())


def passed(test: str) -> Line:
    return Line(test, "call", "passed", False, "")


def failed(test: str, *, by_assertion: bool = True, phase: str = "call") -> Line:
    return Line(test, phase, "failed", by_assertion, "said")


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([failed("a"), failed("b")], Verdict.CAUGHT),
        ([failed("a[1]"), passed("a[2]"), failed("b[x]")], Verdict.CAUGHT),
        ([failed("a"), passed("b")], Verdict.SURVIVED),
        ([passed("a"), passed("b")], Verdict.SURVIVED),
        ([failed("a")], Verdict.ABSENT),
        ([], Verdict.ABSENT),
        ([failed("a"), failed("bc")], Verdict.ABSENT),
        ([failed("a"), Line("b", "call", "skipped", False, "Skipped: no")], Verdict.ABSENT),
        ([failed("a"), failed("b", by_assertion=False)], Verdict.CRASHED),
        ([failed("a"), failed("b", phase="setup")], Verdict.CRASHED),
        ([failed("a"), passed("b"), failed("b", phase="teardown")], Verdict.CRASHED),
        ([failed("a"), failed("b[1]", by_assertion=False), failed("b[2]")], Verdict.CAUGHT),
    ],
)
def test_only_assertions_of_all_named_tests_catch(lines: list[Line], verdict: Verdict) -> None:
    assert judge(["a", "b"], lines).verdict is verdict


def test_what_is_an_assertion() -> None:
    """A test that ran into its time-out has not said anything."""
    assert is_assertion(AssertionError())
    assert is_assertion(pytest.fail.Exception("DID NOT RAISE"))
    assert not is_assertion(pytest.fail.Exception("Timeout (>120.0s) from pytest-timeout."))
    assert not is_assertion(KeyError(7))
