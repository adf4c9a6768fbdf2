"""The bench of planning works at a small size, knows what it should find, and says so when something is wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.plan import wednesday_noon
from bench.plan_mix import Mix
from bucketd.timing import fires_between, load_rule

ROOT = Path(__file__).resolve().parents[2]
SMOKE = [sys.executable, "-m", "bench.plan", "--json", "--schedules", "20000", "--specs", "200", "--minutes", "2"]
WEDNESDAY_S = 1_796_212_800  # 2026-12-02T12:00:00Z


@pytest.fixture(scope="module")
def smoke() -> Iterator[list[tuple[int, dict[str, Any], str]]]:
    """(exit code, result, stderr) of two runs side by side: a true one, and one that is told a wrong number of fires."""
    commands = [SMOKE, [*SMOKE, "--expect-more", "1"]]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        found = []
        for process in running:
            output, errors = process.communicate(timeout=110)
            assert output, errors
            found.append((process.returncode, json.loads(output.splitlines()[-1]), errors))
        yield found
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_smoke_run_counts_what_it_planned(smoke: list[tuple[int, dict[str, Any], str]]) -> None:
    code, result, errors = smoke[0]
    assert code == 0, errors
    assert result["counts_hold"]
    assert (result["schedules"], result["specs"]) == (20_000, 201)
    assert result["planned"] == result["in_redis"] == result["due"]
    assert min(result["due"]) > 200
    assert set(result["parts_ms"]) == {"feed", "specbook", "whole", "ranges", "add", "mark", "rest", "all"}
    assert 0 < result["cpu_s_per_minute"] <= result["worst_cpu_s"]


def test_smoke_run_fails_on_a_wrong_expectation(smoke: list[tuple[int, dict[str, Any], str]]) -> None:
    code, result, _ = smoke[1]
    assert code == 1
    assert not result["counts_hold"]


def test_the_mix_knows_apart_from_the_engine_when_its_crons_fire() -> None:
    mix = Mix(20_000, 2_000)
    assert mix.schedules == 20_000
    for minute_s in range(WEDNESDAY_S, WEDNESDAY_S + 300, 60):
        fired = {
            spec_id
            for spec_id, one in enumerate(mix.specs, 1)
            if one.minutes and not one.jitter_s and fires_between(load_rule(one.rule), minute_s, minute_s + 60)
        }
        assert set(mix.due_crons(minute_s)) == fired
        assert len(fired) > 400


def test_the_start_is_a_wednesday_to_come() -> None:
    assert wednesday_noon(WEDNESDAY_S - 12 * 3_600 - 1) == WEDNESDAY_S
    assert wednesday_noon(WEDNESDAY_S - 12 * 3_600) == WEDNESDAY_S + 7 * 86_400
