"""The bench of hand-overs works at a small size, and says so when something is wrong."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench import arrivals
from bench.handover import Arrived, lengths, lines
from bench.vacancy import Changes, Look, balanced

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [
    sys.executable,
    "-m",
    "bench.handover",
    "--json",
    "--rate",
    "60",
    "--nodes",
    "2",
    "--seconds",
    "3",
    "--ttl",
    "3",
]
LOOSE = ["--graceful", "20", "--p99", "20", "--crash", "20"]


@pytest.mark.long
@pytest.mark.parametrize(("bounds", "failed"), [(LOOSE, set()), ([*LOOSE, "--graceful", "0"], {"hand-over in time"})])
def test_smoke_run(bounds: list[str], failed: set[str]) -> None:
    """At bounds that a busy machine meets, and at one that nobody does."""
    found = subprocess.run([*SMOKE, *bounds], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert found.returncode == bool(failed), found.stderr
    result = json.loads(found.stdout.splitlines()[-1])
    assert {name for name, holds in result["checks"].items() if not holds} == failed
    assert result["rolling_restart"]["unowned"]["max_ms"] > 0
    assert result["crash"]["unowned"]["max_ms"] > 1_000, "not before the lease is over"
    assert result["rows"] == {"succeeded": result["runs"]["due"]}


def looks(*owners: str, every_s: float = 1.0) -> Changes:
    """Looks at one partition, one a second; each takes a tenth."""
    changes = Changes()
    for n, owner in enumerate(owners):
        changes.add(Look(n * every_s, n * every_s + 0.1, (owner,)))
    return changes


def test_a_vacancy_lasts_from_the_last_look_at_the_old_owner_to_the_first_at_the_new() -> None:
    ((partition, before, after, begin_s, end_s),) = looks("", "a", "a", "", "", "b", "b").found
    assert (partition, before, after, begin_s, end_s) == (0, "a", "b", 2.0, 5.1)
    assert looks("a", "b").found[0].length_s == pytest.approx(1.1), "too fast to be seen, and counted all the same"
    assert [one.after for one in looks("a", "", "a").found] == ["a"], "the same one again"
    assert not looks("", "", "a", "a").found, "the first owner follows nobody"
    (lasting,) = looks("a", "", "").open()
    assert lasting.after == ""
    assert lasting.length_s == pytest.approx(2.1)
    assert not looks("a", "", "b").open()


def test_shares() -> None:
    assert balanced(Counter({"a": 130, "b": 126}), 2)
    assert not balanced(Counter({"a": 130, "b": 125, "": 1}), 2)
    assert not balanced(Counter({"a": 256}), 2)
    assert not balanced(Counter({"a": 142, "b": 114}), 2), "the bound is ceil(1.1 * 128) = 141"
    assert balanced(Counter({"a": 71, "b": 71, "c": 71, "d": 43}), 4), "the others may be at the bound"


def test_what_must_come_is_known_by_arithmetic() -> None:
    arrived = Arrived(rate=1)
    arrived.begin_s, arrived.end_s = 100, 112
    arrived.add([(f"s{n % 10}", float(n), 0.01, 1) for n in range(95, 115) if n != 103])
    assert (arrived.due(), arrived.missing(), arrived.doubled, arrived.early) == (12, [(3, 103)], 0, 0)
    arrived.add([("s3", 103.0, -0.01, 1), ("s4", 104.0, 0.5, 2)])
    assert (arrived.missing(), arrived.doubled, arrived.early) == ([], 1, 1)
    assert len(arrived.late(100, 105)) == 5
    assert arrived.on_time(112.0)
    assert not arrived.on_time(120.0), "nothing came then"
    arrived.add([("s9", 109.0 + 10, 1.5, 1)])
    assert not arrived.on_time(122.0)


def test_lines_name_what_failed() -> None:
    phase = {"unowned": lengths([]), "lateness": {"p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0}}
    result = {
        "calm": phase,
        "rolling_restart": phase,
        "crash": phase,
        "runs": {"due": 1, "missing": 0, "doubled": 0, "early": 0},
    }
    assert lines(result | {"checks": {"missing = 0": False}})[-1] == "checks failed: missing = 0"


def test_runs_of_a_batch_are_read_one_by_one() -> None:
    batch = [{"schedule": f"s{n}", "scheduled_at": "2026-12-02T12:00:00Z", "attempt": 1} for n in range(2)]
    arrivals.Prompt.arrivals.append((1_796_212_800.25, "/t0", json.dumps(batch).encode()))
    arrivals.Prompt.arrivals.append((1_796_212_801.0, "/t0", json.dumps(batch[0]).encode()))
    at_s = 1_796_212_800
    assert arrivals.runs() == [("s0", at_s, 0.25, 1), ("s1", at_s, 0.25, 1), ("s0", at_s, 1.0, 1)]
    assert arrivals.runs() == []
