"""The bench of bulkheads works at a small size, and says so when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import arrivals
from bench.bulkhead import lines, quantiles

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [sys.executable, "-m", "bench.bulkhead", "--json", "--rate", "40", "--seconds", "6", "--crowd", "500"]


@pytest.mark.long
@pytest.mark.parametrize(("tolerance", "code"), [("50", 0), ("-0.999", 1)])
def test_smoke_run(tolerance: str, code: int) -> None:
    """At a tolerance that anything meets, and at one that nothing does."""
    found = subprocess.run([*SMOKE, "--tolerance", tolerance], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert found.returncode == code, found.stderr
    result = json.loads(found.stdout.splitlines()[-1])
    assert result["checks"] == {"nothing missing": True, "hanging host keeps to itself": code == 0}
    assert result["tenant_crowd"]["with"]["runs"] > 0


def test_quantiles_are_of_milliseconds() -> None:
    assert quantiles([n / 1000 for n in range(1, 101)]) == {"p50_ms": 51.0, "p99_ms": 100.0, "max_ms": 100.0}
    with pytest.raises(RuntimeError):
        quantiles([])


def test_lines_name_what_failed() -> None:
    phase = {"p50_ms": 1.0, "p99_ms": 2.0}
    pair = {"without": phase, "with": phase, "p99_change": 0.0}
    checks = {"nothing missing": True, "hanging host keeps to itself": False}
    *_, last = lines({"hanging_host": pair, "tenant_crowd": pair, "checks": checks})
    assert last == "checks failed: hanging host keeps to itself"


def test_arrivals_are_read_once_with_their_lateness() -> None:
    body = json.dumps({"tenant": "t", "scheduled_at": "2026-12-02T12:00:00Z"}).encode()
    arrivals.Prompt.arrivals.append((1_796_212_800.25, "/hook", body))
    assert arrivals.read() == [("t", "/hook", 1_796_212_800.0, 0.25)]
    assert arrivals.read() == []
