"""Does a target host that hangs, or a tenant with a crowd of runs, make everybody else late?

Purpose: the bulkheads of a runner, as two pairs of figures. One runner, one scheduler, real stores on one machine; single calls to
21 targets, each second as many as --rate says, 30 % of them to one target. First that target answers like the others; then its URL
is edited to a host that takes requests and never answers. The figure is how late the runs of the other 20 arrived, of each phase.
Then everything answers again, and a second tenant has --crowd runs due at one instant: the same figure of the first tenant, for
as long as the crowd lasts. Lateness is arrival at the target minus scheduled_at, by one clock.
Command: ``python -m bench.bulkhead --json`` (last line one JSON object; exit code 1 if the hanging host moved the others' p99 by
more than 10 %; 4 minutes). ``--rate 40 --seconds 6 --crowd 500`` is a smoke run.
Machine: 2 shared cores, Python 3.11, Postgres 18.4, Redis 7.0.
Last result: the others' p99 131 ms without and 94 ms with the hanging host (p50 65 and 48): it keeps to itself, and takes less
than it did when it answered. A crowd of 100,000 lasted 105 s; meanwhile p99 125 -> 311 ms, p50 61 -> 94 (before crowds had queues of
their own and yielded the loop: 31 s, 210 -> 2,294, 59 -> 273). All of it: results/bulkhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.stage import Stage
from bucketd.cli.output import note
from bucketd.client import Client, ScheduleInput, at, every
from bucketd.embedded import EmbeddedError

TARGETS = 20
HUNG_SHARE = 0.3
EVERY_S = 5  # each schedule; their phases spread over its seconds
WARM_S = 8  # after a start or an edit, until the horizon is planned and connections stand
TOLERANCE = 0.10
RESULTS = Path(__file__).with_name("results") / "bulkhead.json"


def main(argv: list[str] | None = None) -> int:
    """Runs it; the exit code."""
    options = arguments(argv)
    with Stage(keep=options.keep, profiler=None, postgres={}) as stage:
        result = Bench(options, stage).run()
    for line in lines(result):
        note(line)
    if options.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result))
    return 0 if all(result["checks"].values()) else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.bulkhead", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=int, default=300, help="runs a second in all (default 300)")
    parser.add_argument("--seconds", type=int, default=40, help="length of each phase (default 40)")
    parser.add_argument("--crowd", type=int, default=100_000, help="runs of the crowding tenant (default 100,000)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="how much later p99 may be (default 0.1)")
    parser.add_argument("--keep", action="store_true", help="keep the directory of servers and logs")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--json", action="store_true", help="the result as the last line of standard output")
    return parser.parse_args(argv)


class Bench:
    """One run on a stage."""

    def __init__(self, options: argparse.Namespace, stage: Stage) -> None:
        self.options = options
        self.stage = stage
        self.prompt, self.hanging = stage.start_arrivals()

    def run(self) -> dict[str, Any]:
        """All phases; the result."""
        load = os.getloadavg()[0]
        with Client(self.stage.postgres.url, redis_url=self.stage.redis.url) as self.client:
            self._put()
            self.stage.start_runner(1)
            self.stage.start_scheduler(1)
            self._pass(WARM_S + EVERY_S)
            without = self._measure("all targets answer", self.options.seconds)
            self._aim("hung", self.hanging)
            hung = self._measure("one hangs", self.options.seconds)
            self._aim("hung", self.prompt)
            self._pass(WARM_S)
            alone = self._measure("without a crowd", self.options.seconds)
            crowd = self._crowd()
        return self._result(load, without, hung, alone, crowd)

    def _put(self) -> None:
        self._aim("hung", self.prompt)
        for number in range(TARGETS):
            self._aim(f"t{number}", self.prompt)
        schedules = self.options.rate * EVERY_S
        self.client.schedules.put_many(
            ScheduleInput(
                name=f"s{n}",
                tenant="first",
                target="hung" if n < schedules * HUNG_SHARE else f"t{n % TARGETS}",
                timing=every(EVERY_S, phase=n % EVERY_S),
                overlap="allow",
                payload={"n": n},
            )
            for n in range(schedules)
        )

    def _aim(self, target: str, port: int) -> None:
        self.client.targets.put(target, f"http://127.0.0.1:{port}/{target}")

    def _measure(self, what: str, seconds: float) -> dict[str, Any]:
        """A phase: lateness of what was due in it and arrived, but for the target that hangs at some time."""
        note(f"{what}: {seconds:.0f} s")
        self.stage.arrivals()
        begun = time.time()
        self._pass(seconds)
        return self._lateness(begun, time.time())

    def _lateness(self, begun: float, until: float) -> dict[str, Any]:
        found = [
            late
            for tenant, path, due_s, late in self.stage.arrivals()
            if tenant == "first" and path != "/hung" and begun <= due_s < until - 1
        ]
        expected = self.options.rate * (1 - HUNG_SHARE) * (until - 1 - begun)
        return {"runs": len(found), "of_about": round(expected), **quantiles(found)}

    def _crowd(self) -> dict[str, Any]:
        """All of its runs are due at one instant; from then until the last of them was called."""
        runs: int = self.options.crowd
        due_s = time.time() + 20 + runs / 5_000
        instant = datetime.fromtimestamp(int(due_s), UTC)
        for start in range(0, runs, 20_000):
            self.client.schedules.put_many(
                ScheduleInput(name=f"c{n}", tenant="crowd", target=f"t{n % TARGETS}", timing=at(instant))
                for n in range(start, min(start + 20_000, runs))
            )
        note(f"a crowd of {runs:,}")
        crowd: list[float] = []
        first: list[float] = []

        def gone() -> bool:
            for tenant, path, due, late in self.stage.arrivals():
                if tenant == "crowd":
                    crowd.append(late)
                elif path != "/hung" and due >= int(due_s):
                    first.append(late)
            return len(crowd) >= runs

        self._until(gone, due_s - time.time() + 60 + runs / 300)
        lasted_s = max(crowd)
        return {
            "lasted_s": round(lasted_s, 1),
            "crowd_per_s": round(runs / lasted_s),
            "runs": len(first),
            **quantiles(first),
        }

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end, seconds + 1)

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            self.stage.check()
            if time.monotonic() > end:
                raise RuntimeError(f"waited {timeout_s:.0f} s in vain; use --keep to look at the logs")
            time.sleep(0.25)

    def _result(self, load: float, without: Any, hung: Any, alone: Any, crowd: Any) -> dict[str, Any]:
        change, change_crowd = hung["p99_ms"] / without["p99_ms"] - 1, crowd["p99_ms"] / alone["p99_ms"] - 1
        return {
            "rate": self.options.rate,
            "hanging_host": {"without": without, "with": hung, "p99_change": round(change, 3)},
            "tenant_crowd": {
                "runs": self.options.crowd,
                "without": alone,
                "with": crowd,
                "p99_change": round(change_crowd, 3),
            },
            "checks": {
                "nothing missing": all(
                    phase["runs"] >= 0.98 * phase["of_about"] - 1 for phase in (without, hung, alone)
                ),
                "hanging host keeps to itself": change <= self.options.tolerance,
            },
            "machine": {"cores": os.cpu_count(), "load_average_before": round(load, 2)},
        }


def quantiles(late_s: list[float]) -> dict[str, float]:
    """p50, p99 and the worst, in milliseconds."""
    ordered = sorted(late_s)
    if not ordered:
        raise RuntimeError("expected runs to arrive in this phase, got none")
    return {
        f"{name}_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    shown = []
    for name in ("hanging_host", "tenant_crowd"):
        pair = result[name]
        shown += [
            f"{name.replace('_', ' ')}: p99 lateness of the others {pair['without']['p99_ms']} ms without, {pair['with']['p99_ms']} ms"
            f" with it ({pair['p99_change']:+.0%}); p50 {pair['without']['p50_ms']} and {pair['with']['p50_ms']} ms"
        ]
    failed = [name for name, holds in result["checks"].items() if not holds]
    return [*shown, f"checks failed: {', '.join(failed)}" if failed else "all checks hold"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and files go, too
    try:
        sys.exit(main())
    except (RuntimeError, EmbeddedError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
