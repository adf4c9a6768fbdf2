"""The headline bench works, counts what it should, and says so when something is wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import ledger
from bench.load import Load, name, payload, tenant
from bench.target import Request, verify
from bench.verdict import Evidence, judge

ROOT = Path(__file__).resolve().parents[2]
FIRES = 5_000
DUE_S = 1_800_000_000
SMOKE = [sys.executable, "-m", "bench.end_to_end", "--json", "--fires", str(FIRES), "--preload", "20000"]
GOOD = Evidence(
    due=3, delivered=3, doubled=0, missing=0, wrong=0, early_calls=0, rows=3, succeeded=3, first_attempts=3, early_rows=0,
    other_rows=0, settled_rows=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def smoke() -> Iterator[list[tuple[int, dict[str, Any], str]]]:
    """(exit code, result, stderr) of two runs side by side: a true one, and one that is told a wrong number of fires."""
    commands = [SMOKE, [*SMOKE, "--expect", str(FIRES + 1)]]
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


@pytest.mark.alone
def test_smoke_run_passes_its_own_checks(smoke: list[tuple[int, dict[str, Any], str]]) -> None:
    code, result, errors = smoke[0]
    assert code == 0, errors
    assert all(result["checks"].values()), result
    assert result["fires"] == FIRES
    assert result["evidence"]["rows"] == result["evidence"]["delivered"] == FIRES
    assert result["fires_per_s"] > 0
    assert set(result["stages"]) == {"put", "plan", "drain", "confirm", "call", "result"}
    assert all(stage["per_s"] > 0 for stage in result["stages"].values())
    assert {"p50", "p99"} == set(result["start_lateness_ms"])
    assert result["statements"]["confirm.confirm"]["calls"] > 0
    assert result["statements"]["results.succeeded"]["calls"] > 0


@pytest.mark.alone
def test_smoke_run_fails_on_a_wrong_expectation(smoke: list[tuple[int, dict[str, Any], str]]) -> None:
    code, result, _ = smoke[1]
    assert code == 1
    failed = {check for check, holds in result["checks"].items() if not holds}
    assert failed == {"delivered = due", "rows = due", "all succeeded", "attempts = 1"}


def test_good_evidence_holds() -> None:
    assert all(judge(GOOD).values())


@pytest.mark.parametrize("field", [field.name for field in fields(Evidence)])
def test_each_figure_can_fail_a_check(field: str) -> None:
    bad = replace(GOOD, **{field: asdict(GOOD)[field] + 1})
    assert not all(judge(bad).values())


def test_verify_finds_what_is_wrong_with_deliveries() -> None:
    load = Load(fires=5, due_s=DUE_S, crons=False)
    bodies = [_body(number) for number in (0, 1, 1, 2)] + [_body(3) | {"payload": {"account": 1}}]
    late, early = (Request(DUE_S + shift_s, 5, [json.dumps(bodies).encode()]) for shift_s in (0.5, -0.5))
    found = verify([late], load, 0.0)
    assert (found.delivered, found.doubled, found.missing, found.wrong, found.early) == (5, 1, 1, 1, 0)
    assert found.wrong_examples[0].startswith("payload: expected ")
    assert verify([early], load, 0.0).early == 5
    assert verify([early], load, 0.5).early == 0
    assert verify([Request(DUE_S, 4, late.parts)], load, 0.0).wrong == 2


def test_load_is_due_at_its_instant_only() -> None:
    load = Load(fires=150, due_s=DUE_S // 60 * 60, crons=True)
    timings = {schedule.timing for schedule in load.schedules(0, 150)}
    assert len(timings) == 21  # a cron for each zone, and the interval
    assert load.wrong(_body(7, load.due_s)) == ""


def test_ledger_reads_the_log(tmp_path: Path) -> None:
    first = next(line for line, statement in ledger.first_lines().items() if statement == "confirm.confirm")
    log = tmp_path / "postgres.log"
    log.write_text(
        f"before\nLOG:  duration: 1.500 ms  bind _pg3_0: {first}\n\twith clock as (\n"
        f"LOG:  duration: 20.000 ms  execute _pg3_0: {first}\n"
        "LOG:  EXECUTE MESSAGE STATISTICS\nDETAIL:  ! system usage stats:\n\t!\t0.010 s user, 0.002 s system, 0.013 s elapsed\n"
        f"STATEMENT:  {first}\n"
    )
    cost = ledger.costs(log, len("before\n"))["confirm.confirm"]
    assert (cost.calls, round(cost.wall_s, 4), round(cost.cpu_s, 4)) == (1, 0.0215, 0.012)


def _body(number: int, due_s: int = DUE_S) -> dict[str, Any]:
    return {
        "run_id": f"x-{number}",
        "schedule": name(number),
        "tenant": tenant(number),
        "scheduled_at": _iso(due_s),
        "previous_at": _iso(due_s - 3600),
        "next_at": _iso(due_s + 3600),
        "attempt": 1,
        "payload": payload(number),
    }


def _iso(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
