"""The wall clock of a process jumps while it runs, and no other clock; a node, a runner and Redis work under it."""

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from bucketd.embedded import Server, start_redis
from tests.support import faketime
from tests.support.faketime import HOUR_S, FakeClock

# Each line of input is answered by the clocks, and by how long waits of 0.2 s took: in the loop that nodes run on, and in a thread.
ASKED = """
import asyncio, sys, threading, time, uvloop
def waited(wait):
    begun = time.monotonic()
    wait()
    return time.monotonic() - begun
for line in sys.stdin:
    in_loop, in_thread = waited(lambda: uvloop.run(asyncio.sleep(0.2))), waited(lambda: threading.Event().wait(0.2))
    print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), in_loop, in_thread, flush=True)
"""
SLACK_S = 30.0  # of waits and readings on a busy machine; a jump is an hour


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    faketime.needed()
    return FakeClock(tmp_path, cached=False)


@pytest.fixture
def redis_server(clock: FakeClock, tmp_path: Path) -> Iterator[Server]:
    """One that lives by the clock."""
    with clock.redis():
        server = start_redis(tmp_path / "redis")
    with server:
        yield server


@pytest.fixture
def asked(clock: FakeClock) -> Iterator[subprocess.Popen[bytes]]:
    """A process by that clock that answers."""
    command = [sys.executable, "-c", ASKED]
    with subprocess.Popen(command, env=dict(clock.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_only_the_wall_clock_jumps_and_waits_last_as_long(clock: FakeClock, asked: subprocess.Popen[bytes]) -> None:
    assert asked.stdin is not None
    assert asked.stdout is not None
    for jump_s in (0, HOUR_S, -HOUR_S, 0):
        clock.jump(jump_s)
        asked.stdin.write(b"\n")
        asked.stdin.flush()
        assert select.select([asked.stdout], [], [], SLACK_S)[0], "a wait that does not end"
        wall_s, monotonic_s, boot_s, in_loop_s, in_thread_s = map(float, asked.stdout.readline().split())
        assert wall_s - time.time() == pytest.approx(jump_s, abs=SLACK_S)
        assert monotonic_s == pytest.approx(time.monotonic(), abs=SLACK_S)
        assert boot_s == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=SLACK_S)
        assert 0.19 < in_loop_s < SLACK_S
        assert 0.19 < in_thread_s < SLACK_S


async def test_the_clock_of_redis_jumps_with_its_keys(clock: FakeClock, redis_server: Server) -> None:
    async with Redis.from_url(redis_server.url) as redis:

        async def ahead_s() -> float:
            seconds, _ = await redis.time()
            return float(seconds) - time.time()

        await redis.set("lease", "x", px=60_000)
        assert abs(await ahead_s()) < SLACK_S
        clock.jump(-HOUR_S)
        assert abs(await ahead_s() + HOUR_S) < SLACK_S
        assert await redis.pttl("lease") > 3_500_000
        clock.jump(HOUR_S)
        assert abs(await ahead_s() - HOUR_S) < SLACK_S
        assert await redis.get("lease") is None
