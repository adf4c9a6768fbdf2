"""How many fires a second do ordinary schedules reach through all five steps, on one machine with everything on it?

Purpose: the headline figure of the product. 600,000 hourly schedules with default policies are put by the client library, and
are due at one instant. A scheduler plans them into buckets and drains them; a runner confirms, calls a local target that takes
500 runs a request, and writes the results; Postgres (fsync on, synchronous_commit on) holds 5 M rows of today already. The
clock begins at the due instant and ends when the last result is durable (its commit's time). Afterwards the minute settles,
which is measured too, and everything is checked against what was due by arithmetic. To save a wait, the cluster's clock is
turned forward once, to shortly before the due instant and before any process starts.
Command: ``python -m bench.end_to_end --json`` (last line one JSON object; exit code 1 if a check fails; 3 to 4 minutes).
``--fires 5000 --preload 20000`` is a smoke run of half a minute: all intervals, due late in a minute that then settles soon.
Machine: 2 shared cores, Python 3.11, Postgres 18.4, Redis 7.0.
Last result: 80,216 fires/s, every check held; a fire cost 16.1 us of Postgres, 5.3 of the runner, 1.1 of Redis, 0.6 of the
target; settling 3.6 us more. All of it: results/end_to_end.json (written by ``--save``).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from bench import ledger
from bench.history import preload
from bench.load import TARGET, Load
from bench.meter import Meter
from bench.profiler import Profiler
from bench.report import Readings, compose, lines
from bench.stage import Stage, wait_until
from bench.verdict import Evidence, judge
from bench.watch import Watch
from bucketd.cli.output import note
from bucketd.cli.progress import bar
from bucketd.client import Client
from bucketd.embedded import EmbeddedError

BATCH_MAX = 500
LINGER_MS = 5
PUT = 20_000  # schedules a call of put_many
SMOKE = 50_000  # below it, the load is due late in a minute
SMOKE_SECOND = 45
SLOWEST_PUTS = 4_000  # a second, schedules
SLOWEST_FIRES = 1_500
RESULTS = Path(__file__).with_name("results") / "end_to_end.json"


def main(argv: list[str] | None = None) -> int:
    """Runs it; the exit code."""
    options = arguments(argv)
    begun = time.monotonic()
    profiler = Profiler(options.profile) if options.profile else None
    logged = {"log_statement_stats": "on"} if profiler else {}
    with Stage(keep=options.keep, profiler=profiler, postgres=logged) as stage:
        result = Bench(options, stage).run()
    result["took_s"] = round(time.monotonic() - begun, 1)
    for line in lines(result):
        note(line)
    if options.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result))
    return 0 if all(result["checks"].values()) else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.end_to_end", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fires", type=int, default=600_000, help="schedules, each due once (default 600,000)")
    parser.add_argument(
        "--preload", type=int, default=5_000_000, help="rows in today's day of runs (default 5,000,000)"
    )
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--runners", type=int, default=1)
    parser.add_argument("--lead", type=int, help="seconds from the start of the processes to the due instant")
    parser.add_argument(
        "--expect", type=int, help="how many are due, against all arithmetic: shows that the checks can fail"
    )
    parser.add_argument(
        "--profile", type=Path, metavar="DIR", help="profiles of our processes go there (they slow the run)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory of servers and logs")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--json", action="store_true", help="the result as the last line of standard output")
    options = parser.parse_args(argv)
    if options.lead is None:
        options.lead = 10 + options.fires // 20_000
    return options


class Bench:
    """One run on a stage."""

    def __init__(self, options: argparse.Namespace, stage: Stage) -> None:
        self.options = options
        self.stage = stage
        self.readings = Readings(load_average=os.getloadavg()[0])

    def run(self) -> dict[str, Any]:
        """All of it, in order; the result."""
        dsn = self.stage.postgres.url
        with psycopg.connect(dsn, autocommit=True, application_name="bench") as self.postgres:
            self.load = self._choose()
            self.watch = Watch(self.postgres, self.stage.redis.url, self.load.due_s)
            try:
                self._fill()
                self._plan()
                self._fire()
                self._settle()
                return self._result()
            finally:
                self.watch.close()

    def _choose(self) -> Load:
        """Which instant: far enough away that the schedules are there before it."""
        fires = self.options.fires
        crons = fires >= SMOKE
        ready_s = time.time() + 20 + fires / SLOWEST_PUTS + self.options.preload / 50_000 + self.options.lead
        minute_s = int(ready_s) // 60 * 60 + 60
        return Load(fires, minute_s if crons else minute_s + SMOKE_SECOND, crons)

    def _fill(self) -> None:
        """History, target, schedules; then the clock is turned to `lead` seconds before the due instant."""
        with Client(self.stage.postgres.url) as client:
            client.targets.put(TARGET, self.stage.target_url, batch_max=BATCH_MAX, batch_linger_ms=LINGER_MS)
            begun = time.monotonic()
            with bar("preload runs", self.options.preload) as tell:
                preload(self.postgres, self.options.preload, time.time(), tell)
            note(f"{self.options.preload:,} rows of today preloaded in {time.monotonic() - begun:.1f} s")
            begun = time.monotonic()
            with bar("put schedules", self.load.fires) as tell:
                for start in range(0, self.load.fires, PUT):
                    stop = min(start + PUT, self.load.fires)
                    client.schedules.put_many(self.load.schedules(start, stop))
                    tell(stop, self.load.fires)
            self.readings.put_s = time.monotonic() - begun
        self.postgres.execute("vacuum (analyze)")
        self.postgres.execute("checkpoint")
        note(f"{self.load.fires:,} schedules put in {self.readings.put_s:.1f} s")
        if time.time() > self.load.due_s - self.options.lead:
            raise RuntimeError("filling took so long that the due instant is near: the machine is too busy")
        self.readings.rows_before = self.watch.all_rows()
        self.watch.turn_clock(self.load.due_s - self.options.lead)

    def _plan(self) -> None:
        """Starts the processes, and waits until every fire is in its bucket."""
        options, stage, watch = self.options, self.stage, self.watch
        self.log = stage.directory / "postgres" / "postgres.log"
        self.readings.log_begin = self.log.stat().st_size
        self.postgres.execute("alter system set log_min_duration_statement = 0")
        self.postgres.execute("select pg_reload_conf()")
        for number in range(options.runners):
            stage.start_runner(number + 1)
        for number in range(options.schedulers):
            stage.start_scheduler(number + 1)
        pids = {**stage.processes, "redis": stage.redis.pid}
        self.meter = Meter(pids, stage.postgres.pid, self.postgres)
        self.readings.start = self.meter.read()
        left_s = self.load.due_s - watch.now()
        wait_until(watch.owned, left_s, "the partitions to be owned", stage, pause_s=0.02)
        begun = time.monotonic()
        with bar("plan", self.load.fires) as tell:
            while (planned := watch.in_buckets()) < self.load.fires:
                tell(planned, self.load.fires)
                stage.check()
                if watch.now() > self.load.due_s - 1:
                    raise RuntimeError(f"only {planned:,} fires were planned in time; give it a longer --lead")
                time.sleep(0.05)
        self.readings.plan_s = time.monotonic() - begun
        wait_until(lambda: watch.ready(options.schedulers, options.runners), left_s, "owners and runners", stage)
        note(f"{planned:,} fires planned in {self.readings.plan_s:.1f} s; due in {self.load.due_s - watch.now():.1f} s")
        if stage.profiler:
            self._until(self.load.due_s - 3)  # a profiler reads the process's symbols first
            stage.profiler.begin(stage.processes)
        self._until(self.load.due_s - 0.5)
        self.readings.planned = self.meter.read()

    def _fire(self) -> None:
        """The clock: from the due instant to the last result."""
        watch, fires = self.watch, self.load.fires
        self._until(self.load.due_s)
        end_s = self.load.due_s + 30 + fires / SLOWEST_FIRES
        with bar("fire", fires) as tell:
            while (delivered := self.stage.count()) < fires and watch.now() < end_s:
                tell(delivered, fires)
                self.stage.check()
                if self.readings.drained_s is None and not watch.in_buckets():
                    self.readings.drained_s = watch.now() - self.load.due_s
                time.sleep(0.1)
        if self.readings.drained_s is None:  # between two looks
            self.readings.drained_s = watch.now() - self.load.due_s
        time.sleep(0.3)
        while watch.open_runs() and watch.now() < end_s:
            time.sleep(0.2)
        self.readings.fired = self.meter.read()
        if self.stage.profiler:
            self.stage.profiler.end()
        self.readings.runs = watch.runs()
        self.readings.rows_fired = watch.all_rows()
        note(
            f"{delivered:,} runs delivered, last result {self.readings.runs.result_last_s or 0:.2f} s after the due instant"
        )

    def _settle(self) -> None:
        """Waits for the end of the due minute, and until it is settled."""
        minute_end_s = self.load.due_s // 60 * 60 + 60
        self._until(minute_end_s)
        before, begun = self.meter.read(), self.watch.now()
        wait_until(self.watch.settled, 150, "the due minute to be settled", self.stage, pause_s=0.1)
        self.readings.settle_s = self.watch.now() - begun
        self.readings.settling = (before, self.meter.read())
        self.readings.rows_settled = self.watch.all_rows()
        self.readings.end = self.readings.settling[1]

    def _result(self) -> dict[str, Any]:
        readings, runs = self.readings, self.readings.runs
        assert runs is not None
        deliveries = self.stage.verify(self.load, self.watch.offset_s)
        evidence = Evidence(
            due=self.options.expect or self.load.fires,
            delivered=deliveries.delivered,
            doubled=deliveries.doubled,
            missing=deliveries.missing,
            wrong=deliveries.wrong,
            early_calls=deliveries.early,
            rows=runs.rows,
            succeeded=runs.succeeded,
            first_attempts=runs.first_attempts,
            early_rows=runs.early,
            other_rows=readings.rows_fired - readings.rows_before - runs.rows,
            settled_rows=readings.rows_settled - readings.rows_fired,
        )
        # Stopped first, so that the profiles are written and the log is whole.
        self.stage.stop()
        statements = ledger.costs(self.log, readings.log_begin)
        return compose(self.options, self.load, readings, deliveries, statements, evidence, judge(evidence))

    def _until(self, at_s: float) -> None:
        while (left_s := at_s - self.watch.now()) > 0:
            self.stage.check()
            time.sleep(min(0.5, left_s))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and files go, too
    try:
        sys.exit(main())
    except (RuntimeError, EmbeddedError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
