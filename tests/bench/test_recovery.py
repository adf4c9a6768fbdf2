"""The bench of recovery works at a small size, and says so when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.recovery import CALM_S, Calls, lines

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [sys.executable, "-m", "bench.recovery", "--json", "--schedules", "20000", "--specs", "200"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("own_s", "failed"), [("60", set()), ("0", {"a node owns its share in time"})])
def test_smoke_run(own_s: str, failed: set[str]) -> None:
    """At a bound that a busy machine meets, and at one that nobody does."""
    found = subprocess.run([*SMOKE, "--own", own_s], cwd=ROOT, capture_output=True, text=True, timeout=590)
    assert found.returncode == bool(failed), found.stderr
    result = json.loads(found.stdout.splitlines()[-1])
    assert {name for name, holds in result["checks"].items() if not holds} == failed
    assert result["flushall"]["arrived"] == result["flushall"]["due"] > 200
    assert 0 < result["flushall"]["first_call_s"] < 30


def calls(*runs: tuple[str, float, float]) -> Calls:
    """A clock that is a minute ahead; the schedule `j` is due 30 s after its instant."""
    found = Calls(60.0, {"j": 30})
    found.add([(schedule, at_s, late_s - 60, 1) for schedule, at_s, late_s in runs])
    return found


def test_lateness_is_told_from_jitter() -> None:
    found = calls(("a", 100.0, 0.5), ("j", 100.0, 30.25), ("a", 100.0, 9.0))
    assert found.due_in(100, 101) == [(100, 0.5)]
    assert found.due_in(130, 131) == [(130, 0.25)]
    assert found.doubled == 1


def test_on_time_needs_calls_and_none_late() -> None:
    now_s = 200.0
    assert not calls().on_time(now_s)
    assert calls(("a", 195.0, 0.9)).on_time(now_s)
    assert not calls(("a", 195.0, 0.1), ("b", 195.0, 1.1)).on_time(now_s)
    assert not calls(("a", now_s - CALM_S - 5, 0.1)).on_time(now_s), "that is long ago"


def test_the_first_call_is_one_that_was_due_later() -> None:
    found = calls(("a", 99.0, 5.0), ("b", 103.0, 0.5), ("c", 102.0, 4.0))
    assert found.first_after(100.5, 110.0) == pytest.approx(3.0)
    assert calls(("a", 99.0, 5.0)).first_after(100.5, 110.0) is None


def test_lines_name_what_failed() -> None:
    flush: dict[str, Any] = dict.fromkeys(
        ("first_call_s", "late_calls", "last_late_call_s", "worst_lateness_s", "due", "arrived"), 1
    )
    result = {
        "schedules": 1,
        "starts": [{"owned_s": 1.0}],
        "flushall": flush | {"doubled": 0, "progress": ["planning minutes=1/5"]},
    }
    shown = lines(result | {"checks": {"nothing missing": False}})
    assert shown[-1] == "checks failed: nothing missing"
    assert "planning minutes=1/5" in shown
