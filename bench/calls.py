"""How many calls a second does one core of a runner make, one request a run, and what does bare aiohttp do beside it?

Purpose: step 4 for targets that take one run a request: body and headers of the run, its signature, the egress guard, httpx's
request and response over aiohttp, the answer. The aim is 5,000 calls a second and core.
Method: one process makes the calls, over uvloop and with the garbage collector as the runner has it; CONCURRENCY of them are in
flight. The target is a process of its own that answers in a few microseconds and shares nothing with this one but the connection.
What counts is the processor time of this process (`calls_per_cpu_s`), which other work on the machine does not touch as long as its
caches are its own; calls per second of the clock stand beside. Ways to call take turns, ROUNDS rounds, and the median of each
counts: `runner` as above; `unsigned`, its target without a secret; `bare`, aiohttp's own post of the same bytes and the same headers
with its answer read, without httpx, guard and time-out. `ratio` is what a bare call costs of one of the runner's.
Checks: each call was answered with 204, and the target got as many, those of `runner` and `bare` signed.
Command: ``python -m bench.calls --json`` (last line one JSON object; exit code 1 if a check fails; half a minute).
``--seconds 0.3 --rounds 1`` is a smoke run. ``--profile FILE`` writes what cProfile sees of `runner`, which costs it half its speed.
Machine: 2 shared cores, Python 3.11.
Last result: 6,055 calls a second of processor with signature and guard (6,050 of the clock), 6,122 unsigned, 12,027 bare: a bare call
costs 50 % of the runner's. All of it: results/calls.json (written by ``--save``).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import uvloop

from bucketd.runner.bodies import body, moment_of
from bucketd.runner.call import Caller
from bucketd.runner.request import request_of, timeout_s
from bucketd.runner.run import Claim, Incarnation, Run
from bucketd.store.allow_list import LOOPBACK, AllowList
from bucketd.store.clock import utc, wall
from bucketd.store.runners import CallTarget
from bucketd.store.secrets import Secret
from bucketd.store.signing import key_of, new_secret

CONCURRENCY = 64
AIM_PER_CPU_S = 5_000
PAYLOAD = json.dumps({"account": 4711, "full": False, "fields": ["name", "email", "plan"], "since": "2026-11-30"})
RESULTS = Path(__file__).with_name("results") / "calls.json"

Call = Callable[[], Awaitable[int | None]]  # one call; its status


def main(argv: list[str] | None = None) -> int:
    """Runs it; the exit code."""
    options = arguments(argv)
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    result = uvloop.run(measure(options))
    if not options.json:
        for name, figures in result["ways"].items():
            print(
                f"{name:9} {figures['calls_per_cpu_s']:>8,} calls/s of processor  {figures['calls_per_s']:>8,} calls/s"
            )
        print(f"a bare call costs {result['ratio']:.0%} of the runner's")
    if options.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))
    return 0 if all(result["checks"].values()) else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="calls a second and core, one request a run, beside bare aiohttp")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round of one way (2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way (5)")
    parser.add_argument("--profile", type=Path, help="write cProfile's statistics of `runner`")
    return parser.parse_args(argv)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    with TargetProcess() as process:
        caller, session = Caller(AllowList.parse(LOOPBACK)), aiohttp.ClientSession()
        try:
            ways = ways_to_call(process.url, caller, session)
            rounds: dict[str, list[Round]] = {name: [] for name in ways}
            for _ in range(options.rounds):
                for name, call in ways.items():
                    profile = cProfile.Profile() if options.profile and name == "runner" else None
                    rounds[name].append(await Round.of(call, options.seconds, profile))
                    if profile:
                        profile.dump_stats(options.profile)
        finally:
            await session.close()
            await caller.close()
        came, signed = process.count()
    return compose(rounds, came, signed)


def ways_to_call(url: str, caller: Caller, session: aiohttp.ClientSession) -> dict[str, Call]:
    """By name; `runner` is what is measured."""
    signed = target_at(url, (Secret(key_of(new_secret()), None),))
    unsigned = replace(signed, secrets=())
    run = a_run()
    content, headers = request_of(run, signed, wall())

    async def runner(target: CallTarget) -> int | None:
        content, headers = request_of(run, target, wall())
        answer = await caller.post(target, content, headers, timeout_s(run.timeout_s, target))
        return answer.status

    async def bare() -> int:
        async with session.post(url, data=content, headers=headers) as response:
            await response.read()
            return response.status

    return {"runner": lambda: runner(signed), "unsigned": lambda: runner(unsigned), "bare": bare}


def target_at(url: str, secrets: tuple[Secret, ...]) -> CallTarget:
    """A target with the defaults of the client."""
    return CallTarget(
        target_id=1, revision=1, name="bench", url=url, headers={"authorization": "Bearer 0123456789abcdef"},
        connect_timeout_s=5.0, timeout_s=30.0, max_attempts=5, retry_base_s=10.0, retry_cap_s=3600.0, batch_max=1,
        batch_linger_ms=0, batch_by_tenant=False, body="envelope", max_running=None, rate_per_s=None, complete_within_s=None,
        secrets=secrets,
    )  # fmt: skip


def a_run() -> Run:
    """A run of a usual size."""
    moment = moment_of(utc(1_800_000_000))
    run_id = moment.id_prefix + "3f" * 16
    text = body(run_id, "crm-sync-4711", "acme", moment.instants, 1, PAYLOAD)
    fields: dict[str, Any] = dict.fromkeys(Run._fields)
    return Run(
        **{**fields, "attempt": 1, "claim": Claim(Incarnation.__new__(Incarnation)), "run_id": run_id, "body": text}
    )


class Round:
    """One way to call for some seconds."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.wall_s = 0.0
        self.cpu_s = 0.0

    @classmethod
    async def of(cls, call: Call, seconds: float, profile: cProfile.Profile | None) -> Round:
        """CONCURRENCY calls at once, until the time is over and the last has ended."""
        made = cls()
        wall, cpu = time.monotonic(), time.process_time()
        if profile:
            profile.enable()
        await asyncio.gather(*[made._worker(call, wall + seconds) for _ in range(CONCURRENCY)])
        if profile:
            profile.disable()
        made.wall_s, made.cpu_s = time.monotonic() - wall, time.process_time() - cpu
        return made

    async def _worker(self, call: Call, until: float) -> None:
        while time.monotonic() < until:
            status = await asyncio.create_task(_awaited(call))  # a task a call, as in the runner
            self.calls += 1
            self.failed += status != 204


async def _awaited(call: Call) -> int | None:
    return await call()


class TargetProcess:
    """`bench.call_target`, for as long as the block."""

    def __enter__(self) -> TargetProcess:
        command = [sys.executable, "-m", "bench.call_target"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self._line())}/runs"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)  # it ends with its standard input

    def count(self) -> tuple[int, int]:
        """Requests that came, and how many of them were signed."""
        assert self._process.stdin is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        came, signed = json.loads(self._line())
        return came, signed

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def compose(rounds: dict[str, list[Round]], came: int, signed: int) -> dict[str, Any]:
    """The result."""
    ways = {
        name: {
            "calls_per_cpu_s": round(median(one.calls / one.cpu_s for one in of)),
            "calls_per_s": round(median(one.calls / one.wall_s for one in of)),
            "us_of_cpu_per_call": round(median(one.cpu_s / one.calls for one in of) * 1e6, 1),
            "calls": sum(one.calls for one in of),
        }
        for name, of in rounds.items()
    }
    calls = {name: int(figures["calls"]) for name, figures in ways.items()}
    return {
        "calls_per_cpu_s": ways["runner"]["calls_per_cpu_s"],
        "ratio": round(ways["bare"]["us_of_cpu_per_call"] / ways["runner"]["us_of_cpu_per_call"], 3),
        "aim_per_cpu_s": AIM_PER_CPU_S,
        "ways": ways,
        "checks": {
            "all_answered": not any(one.failed for of in rounds.values() for one in of),
            "all_arrived": came == sum(calls.values()),
            "all_signed": signed == calls["runner"] + calls["bare"],
        },
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average": round(os.getloadavg()[0], 2),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
