"""The bench of single calls works, and says so when calls are missing."""

import json
import subprocess
import sys
from pathlib import Path

from bench.calls import Round, compose

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [sys.executable, "-m", "bench.calls", "--json", "--seconds", "0.2", "--rounds", "1"]


def test_smoke_run_passes_its_own_checks() -> None:
    done = subprocess.run(SMOKE, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["checks"] == {"all_answered": True, "all_arrived": True, "all_signed": True}
    assert set(result["ways"]) == {"runner", "unsigned", "bare"}
    assert result["calls_per_cpu_s"] == result["ways"]["runner"]["calls_per_cpu_s"] > 0
    assert 0 < result["ratio"] < 1.5


def a_round(calls: int, failed: int = 0) -> Round:
    made = Round()
    made.calls, made.failed, made.wall_s, made.cpu_s = calls, failed, 2.0, 1.0
    return made


def test_what_is_missing_is_seen() -> None:
    def checks(came: int, signed: int, failed: int = 0) -> dict[str, bool]:
        rounds = {"runner": [a_round(10, failed)], "unsigned": [a_round(20)], "bare": [a_round(30)]}
        found: dict[str, bool] = compose(rounds, came, signed)["checks"]
        return found

    assert all(checks(60, 40).values())
    assert not checks(59, 40)["all_arrived"]
    assert not checks(60, 39)["all_signed"]
    assert not checks(60, 40, failed=1)["all_answered"]


def test_the_ratio_is_of_processor_time_and_of_the_median_round() -> None:
    rounds = {"runner": [a_round(5), a_round(10), a_round(1_000)], "unsigned": [a_round(20)], "bare": [a_round(40)]}
    result = compose(rounds, 1_075, 1_055)
    assert (result["calls_per_cpu_s"], result["ways"]["runner"]["calls_per_s"]) == (10, 5)
    assert result["ratio"] == 0.25
