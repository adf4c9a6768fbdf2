"""What does planning a minute cost, when 100,000 of 10 M schedules are due, by 30,000 of 100,000 specs?

Purpose: the scheduler's ceiling. The aim is 1 s of processor time for such a minute, of node, Postgres and Redis together.
Method: a table of schedules as plan_mix.py describes it is loaded past triggers and indexes; a real scheduler node runs in this
process, owns all partitions, learns the specs and plans its first horizon. Then the cluster's clock goes on minute by
minute, and each time the planner's round is measured by the processor time of all three (psutil), in total and by part. The fires
of each minute are counted in Redis and must be as many as plan_mix.py finds due by its own arithmetic.
Command: ``python -m bench.plan --json`` (last line one JSON object; exit code 1 if a count is wrong; about 8 minutes and 6 GB of
disk). A quiet machine is needed: processor time grows by a multiple where cores are shared, and `yardstick_ns` hints how much.
``--schedules 20000 --specs 200`` is a smoke run; ``--keep DIR`` keeps the loaded servers there, and goes on with them.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.plan_mix import Mix, expected, fill
from bench.plan_parts import Parts, per_minute
from bench.stage import POSTGRES as MACHINE
from bucketd.cli.output import note
from bucketd.embedded import EmbeddedError, Server, start_postgres, start_redis
from bucketd.embedded.postgres import PostgresServer
from bucketd.scheduler.node import Scheduler
from bucketd.store import buckets, feed, partitions, plan
from bucketd.store.clock import Clock
from bucketd.store.config import Settings
from bucketd.store.keys import PARTITIONS
from bucketd.store.migrate import migrate

AIM_S = 1.0
MINUTE_S, DAY_S = 60, 86_400
# Loading is what these are for; planning writes nothing to Postgres. Autovacuum would be counted as planning.
POSTGRES = {**MACHINE, "wal_level": "minimal", "max_wal_senders": "0", "fsync": "off", "autovacuum": "off"}
RESULTS = Path(__file__).with_name("results") / "plan.json"


def main(argv: list[str] | None = None) -> int:
    """Runs it; the exit code."""
    options = arguments(argv)
    begun = time.monotonic()
    with (
        directory(options.keep) as place,
        start_postgres(place / "postgres", settings=POSTGRES) as postgres,
        start_redis(place / "redis") as redis,
        psycopg.connect(postgres.url, autocommit=True, application_name="bench") as connection,
    ):
        result = asyncio.run(Bench(options, postgres, redis, connection).run())
    result["took_s"] = round(time.monotonic() - begun, 1)
    if options.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result))
    return 0 if result["counts_hold"] else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.plan", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=10_000_000, help="default 10,000,000")
    parser.add_argument("--specs", type=int, default=100_000, help="default 100,000")
    parser.add_argument("--minutes", type=int, default=6, help="measured one after the other (default 6)")
    parser.add_argument("--expect-more", type=int, default=0, help="wrong by so many: shows that the check can fail")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the loaded servers there, and use them again")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="cProfile of the measured rounds (slows them)")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--json", action="store_true", help="the result as the last line of standard output")
    return parser.parse_args(argv)


@contextmanager
def directory(keep: Path | None) -> Iterator[Path]:
    """Where the servers' data is: kept, or gone afterwards."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        keep.chmod(0o711)  # started by root, Postgres runs as another user, who must get through
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="bucketd-bench-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


class Bench:
    """One run on servers that are there."""

    def __init__(
        self, options: argparse.Namespace, postgres: PostgresServer, redis: Server, connection: psycopg.Connection[Any]
    ) -> None:
        self.options = options
        self.connection = connection
        self.mix = Mix(options.schedules, options.specs)
        self.start_s = wednesday_noon(time.time())
        # A lease must outlast a round on a busy machine: partitions taken anew would be planned anew.
        settings = Settings.load(
            {}, dsn=postgres.url, redis_url=redis.url, redis_prefix=f"bench{os.getpid()}",
            lease_ttl_s=60, lease_renew_s=20, lease_margin_s=5,
        )  # fmt: skip
        self.scheduler = Scheduler(settings)
        self.parts = Parts(postgres.pid, redis.pid)

    async def run(self) -> dict[str, Any]:
        """All of it, in order; the result."""
        load_s = self._load()
        self._turn_clock(self.start_s)
        self.connection.execute(
            "update bucketd.partitions set feed_snapshot = pg_current_snapshot(), settled_through = to_timestamp(%s)",
            (self.start_s - 1,),
        )
        await self.scheduler.open()
        try:
            self.parts.find()
            begun = self.parts.read()
            await self._follow_clock()
            await self.scheduler.planner.run_once()
            first = difference(begun, self.parts.read())
            note(f"specs learned and a horizon planned: {sum(first.values()):.1f} s of processor time")
            # That may have taken longer than a lease lives: what was lost is taken and planned again before anything is measured.
            await self._follow_clock()
            await self.scheduler.planner.run_once()
            minutes = await self._measure()
        finally:
            self.parts.close()
            await self.scheduler.close()
        return self._result(load_s, first, minutes)

    def _load(self) -> float:
        begun = time.monotonic()
        found = self.connection.execute("select to_regclass('bench_mix') is not null").fetchone()
        if found == (True,):
            note("the schedules are there already")
            return 0.0
        migrate(self.connection.info.dsn)
        fill(self.connection, self.mix, self.start_s)
        note(f"{self.mix.schedules:,} schedules loaded in {time.monotonic() - begun:.0f} s")
        return time.monotonic() - begun

    def _turn_clock(self, now_s: float) -> None:
        self.connection.execute(
            "update bucketd.cluster set clock_offset = to_timestamp(%s::float8) - clock_timestamp()", (now_s,)
        )

    async def _follow_clock(self) -> None:
        """The node sees the clock that was turned, and keeps what it owns."""
        node = self.scheduler.node
        node.clock = Clock()
        async with node.pool.connection() as connection:
            await partitions.read_clock(connection, node.clock)
        await self.scheduler.ownership.run_once()

    async def _measure(self) -> list[dict[str, Any]]:
        """Minute by minute: what it cost, how many fires and due specs there were, and how many there should be."""
        node, parts = self.scheduler.node, self.parts
        begin_s = max(partition.planned_until for partition in node.owned.values()) * MINUTE_S
        for part, owner, name in (
            ("feed", feed, "schedules"), ("feed", feed, "specs"), ("specbook", node.book, "due"), ("whole", plan, "whole"),
            ("ranges", plan, "ranges"), ("add", buckets, "add"), ("mark", buckets, "mark"),
        ):  # fmt: skip
            parts.watch(part, owner, name)
        profile = cProfile.Profile() if self.options.profile else None
        found: list[dict[str, Any]] = []
        for minute_s in range(begin_s, begin_s + MINUTE_S * self.options.minutes, MINUTE_S):
            self._turn_clock(minute_s - node.settings.horizon_s + 1)
            await self._follow_clock()
            parts.find()
            before = parts.read()
            if profile:
                profile.enable()
            report = await self.scheduler.planner.run_once()
            if profile:
                profile.disable()
            spent = difference(before, parts.read())
            note(", ".join(f"{who} {seconds:.3f} s" for who, seconds in spent.items()))
            found.append({"minute_s": minute_s, "fires": report.fires, "spent": spent, "yardstick_ns": yardstick_ns()})
        if profile:
            profile.dump_stats(self.options.profile)
        return [minute | await self._counted(minute["minute_s"]) for minute in found]

    async def _counted(self, minute_s: int) -> dict[str, Any]:
        """How many fires of a minute are in Redis, how many should be, and of how many crons."""
        node = self.scheduler.node
        pipeline = node.redis.pipeline(transaction=False)
        for partition in range(PARTITIONS):
            pipeline.zcard(node.keys.bucket(partition, minute_s // MINUTE_S))
        in_redis = sum(await pipeline.execute())
        due = expected(self.connection, self.mix, minute_s) + self.options.expect_more
        crons = len(self.mix.due_crons(minute_s))
        note(f"{in_redis:,} fires of {due:,}, {crons:,} crons")
        return {"in_redis": in_redis, "due": due, "due_crons": crons}

    def _result(self, load_s: float, first: dict[str, float], minutes: list[dict[str, Any]]) -> dict[str, Any]:
        whole = {who: sum(minute["spent"][who] for minute in minutes) for who in ("node", "postgres", "redis")}
        cpu_s = [round(sum(minute["spent"].values()), 3) for minute in minutes]
        mean_s = round(sum(cpu_s) / len(cpu_s), 3)
        return {
            "cpu_s_per_minute": mean_s,
            "worst_cpu_s": max(cpu_s),
            "under_aim": max(cpu_s) < AIM_S,
            "cpu_s": cpu_s,
            "parts_ms": per_minute(self.parts.spent, whole, len(minutes)),
            "first_horizon_cpu_s": round(sum(first.values()), 2),
            "schedules": self.mix.schedules,
            "specs": len(self.mix.specs),
            "planned": [minute["fires"] for minute in minutes],
            "in_redis": [minute["in_redis"] for minute in minutes],
            "due": [minute["due"] for minute in minutes],
            "due_crons": [minute["due_crons"] for minute in minutes],
            "counts_hold": all(minute["fires"] == minute["in_redis"] == minute["due"] for minute in minutes),
            "yardstick_ns": [minute["yardstick_ns"] for minute in minutes],
            "load_s": round(load_s, 1),
        }


def wednesday_noon(after_s: float) -> int:
    """The next one, UTC: no zone changes its clocks on a Wednesday or Thursday, so wall clocks tell what is due."""
    day = int(after_s) // DAY_S + 1
    return (day + (6 - day) % 7) * DAY_S + DAY_S // 2  # day 0 was a Thursday


def yardstick_ns() -> float:
    """Processor time of one turn of an empty loop: about 40 where nothing else runs, several times that on a crowded machine,
    where seconds of processor time mean as much less."""
    begun, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return round((time.process_time() - begun) * 1_000, 1)


def difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What was spent between two readings."""
    return {who: seconds - before[who] for who, seconds in after.items()}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, EmbeddedError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
