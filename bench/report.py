"""From readings to the result: one JSON object, and a few lines for people."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.ledger import Cost
from bench.load import Load
from bench.meter import used
from bench.target import Deliveries
from bench.verdict import Evidence
from bench.watch import Runs

CpuReading = dict[str, float]
SHOWN_STATEMENTS = 12


@dataclass(slots=True)
class Readings:
    """What was read on the way. Seconds; CPU readings are totals by name."""

    load_average: float
    put_s: float = 0.0
    plan_s: float = 0.0
    drained_s: float | None = None
    settle_s: float = 0.0
    rows_before: int = 0
    rows_fired: int = 0
    rows_settled: int = 0
    log_begin: int = 0
    runs: Runs | None = None
    start: CpuReading = field(default_factory=dict)
    planned: CpuReading = field(default_factory=dict)
    fired: CpuReading = field(default_factory=dict)
    settling: tuple[CpuReading, CpuReading] = field(default_factory=lambda: ({}, {}))
    end: CpuReading = field(default_factory=dict)


def compose(
    options: argparse.Namespace,
    load: Load,
    readings: Readings,
    deliveries: Deliveries,
    statements: Mapping[str, Cost],
    evidence: Evidence,
    checks: Mapping[str, bool],
) -> dict[str, Any]:
    """The result. CPU of `cpu_s` is of the clock alone; microseconds are per fire."""
    runs = readings.runs
    assert runs is not None
    seconds = runs.result_last_s or 0.0
    cpu = used(readings.planned, readings.fired)
    return {
        "fires": load.fires,
        "fires_per_s": round(load.fires / seconds) if seconds else 0,
        "seconds": round(seconds, 3),
        "stages": _stages(load.fires, readings, runs, deliveries),
        "cpu_s": cpu,
        "cpu_us_per_fire": _per_fire(cpu, load.fires),
        "settle": _settle(load.fires, readings),
        "start_lateness_ms": dict(zip(("p50", "p99"), (round(ms, 1) for ms in runs.lateness_ms or ()), strict=False)),
        "statements": _statements(load.fires, statements),
        "checks": dict(checks),
        "evidence": asdict(evidence),
        "wrong_examples": deliveries.wrong_examples,
        "preload": options.preload,
        "schedulers": options.schedulers,
        "runners": options.runners,
        "profiled": options.profile is not None,
        "requests": deliveries.requests,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average_before": round(readings.load_average, 2),
            "cores_used_by_strangers": round(cpu.get("strangers", 0.0) / seconds, 2) if seconds else None,
        },
    }


def _stages(fires: int, readings: Readings, runs: Runs, deliveries: Deliveries) -> dict[str, Any]:
    planning = used(readings.start, readings.planned)
    return {
        "put": {"seconds": round(readings.put_s, 2), "per_s": _rate(fires, readings.put_s)},
        "plan": {
            "seconds": round(readings.plan_s, 2),
            "per_s": _rate(fires, readings.plan_s),
            "cpu_us_per_fire": _per_fire(planning, fires),
        },
        "drain": {"through_s": _round(readings.drained_s), "per_s": _rate(fires, readings.drained_s)},
        "confirm": _span(fires, runs.confirm_first_s, runs.confirm_last_s),
        "call": _span(fires, deliveries.first_s, deliveries.last_s),
        "result": _span(fires, runs.result_first_s, runs.result_last_s),
    }


def _span(fires: int, first_s: float | None, last_s: float | None) -> dict[str, Any]:
    """The stages overlap: each from its first to its last fire, in seconds after the due instant."""
    length_s = None if first_s is None or last_s is None else last_s - first_s
    return {"from_s": _round(first_s), "through_s": _round(last_s), "per_s": _rate(fires, length_s)}


def _settle(fires: int, readings: Readings) -> dict[str, Any]:
    cpu = used(*readings.settling)
    spent_s = cpu.get("scheduler", 0.0) + cpu.get("postgres: bucketd scheduler", 0.0)
    return {
        "cpu_us_per_fire": round(spent_s / fires * 1e6, 2),
        "after_minute_s": round(readings.settle_s, 2),
        "rows_added": readings.rows_settled - readings.rows_fired,
    }


def _statements(fires: int, costs: Mapping[str, Cost]) -> dict[str, Any]:
    """The dearest statements since the processes started; `cpu_us_per_fire` only with --profile."""
    dearest = sorted(costs.items(), key=lambda item: -(item[1].wall_s or item[1].cpu_s))[:SHOWN_STATEMENTS]
    return {
        name: {
            "calls": cost.calls,
            "mean_ms": round(cost.wall_s / max(cost.calls, 1) * 1000, 2),
            "us_per_fire": round(cost.wall_s / fires * 1e6, 2),
            **({"cpu_us_per_fire": round(cost.cpu_s / fires * 1e6, 2)} if cost.cpu_s else {}),
        }
        for name, cost in dearest
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """The result for people."""
    cpu = ", ".join(f"{name} {us}" for name, us in result["cpu_us_per_fire"].items())
    settle, late = result["settle"], result["start_lateness_ms"]
    failed = [name for name, holds in result["checks"].items() if not holds]
    return [
        f"{result['fires']:,} fires in {result['seconds']:.2f} s: {result['fires_per_s']:,} fires/s",
        *(f"  {stage:8} {figures.get('per_s') or 0:>10,}/s" for stage, figures in result["stages"].items()),
        f"  CPU, us a fire: {cpu}",
        f"  settling: {settle['cpu_us_per_fire']} us of CPU a fire; start lateness ms: {late}",
        f"  checks failed: {', '.join(failed)}" if failed else f"  all {len(result['checks'])} checks hold",
    ]


def _per_fire(cpu: Mapping[str, float], fires: int) -> dict[str, float]:
    return {name: round(seconds / fires * 1e6, 2) for name, seconds in cpu.items()}


def _rate(fires: int, seconds: float | None) -> int | None:
    return round(fires / seconds) if seconds else None


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
