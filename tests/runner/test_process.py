"""The runner as a process: killed, terminated, misconfigured."""

import os
import sys
from pathlib import Path

import psycopg

from tests.runner.conftest import World
from tests.support.processes import Process
from tests.support.proxy import Proxy
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


def start(world: World, directory: Path, name: str, **more: str) -> Process:
    """`python -m bucketd.runner` on the world's stores."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("BUCKETD_")} | {
        "BUCKETD_DSN": world.settings.dsn.get_secret_value(),
        "BUCKETD_REDIS_URL": world.settings.redis_url.get_secret_value(),
        "BUCKETD_REDIS_PREFIX": world.settings.redis_prefix,
        "BUCKETD_EGRESS_ALLOW": world.settings.egress_allow,
        "BUCKETD_RECLAIM_IDLE_S": "0.5",
        **more,
    }
    return Process(name, [sys.executable, "-m", "bucketd.runner"], env, directory / f"{name}.log")


def confirming(world: World) -> bool:
    """Whether a confirm statement waits for a lock. Asked on a connection of its own: a transaction sees one snapshot."""
    with psycopg.connect(world.settings.dsn.get_secret_value(), autocommit=True) as other:
        found = other.execute(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%Step 3:%'"
            " and pid <> pg_backend_pid()"
        )
        return found.fetchone() is not None


async def test_killed_between_commit_and_acknowledgement(
    world: World, target: Target, hook: int, tmp_path: Path
) -> None:
    """I6: the message comes again, and nothing is called again."""
    target.script = lambda request: Reply(hang=True)
    async with Proxy(world.settings.redis_url.get_secret_value()) as proxy:
        killed = start(world, tmp_path, "killed", BUCKETD_REDIS_URL=proxy.url)
        try:
            await killed.wait_output("runner_started", 20)
            with world.db.transaction():
                world.sql("lock table bucketd.runs in share mode")  # confirm waits ..
                world.put([world.fire(world.schedule(hook), world.now_s - 5)])
                await wait_until(lambda: confirming(world), 10, "confirm at the lock")
                proxy.freeze()  # .. until no acknowledgement can pass
            await target.wait_runs(1, 20)
        finally:
            killed.kill9()
    assert world.pending() == 1
    async with world.runner() as runner:
        await wait_until(lambda: runner.totals["refused_duplicate"], 10, "the redelivery")
        await wait_until(lambda: not world.queued(), 10, "its acknowledgement")
    assert len(target.runs) == 1
    assert world.statuses() == {"running": 1}  # the reaper's


async def test_sigterm_finishes_calls_and_leaves(world: World, target: Target, hook: int, tmp_path: Path) -> None:
    target.script = lambda request: Reply(delay_s=1.0)
    world.put(world.fire(world.schedule(hook), world.now_s - 5) for _ in range(10))
    process = start(world, tmp_path, "terminated")
    try:
        await target.wait_runs(10, 20)
        process.terminate()
        assert await process.wait_exit(10) == 0
    finally:
        process.kill9()
    assert world.statuses() == {"succeeded": 10}
    assert world.value("select dead_at is not null from bucketd.runners")
    assert world.sql("select 1 from bucketd.claims") == []
    assert world.pending() == 0
    assert "Traceback" not in process.output()


async def test_a_wrong_address_is_said_and_ends_it(world: World, tmp_path: Path) -> None:
    process = start(world, tmp_path, "lost", BUCKETD_REDIS_URL="redis://127.0.0.1:1/0")
    assert await process.wait_exit(20) == 4
    assert "cannot use Redis" in process.output()
    assert "Traceback" not in process.output()


async def test_a_bad_setting_is_said_and_ends_it(world: World, tmp_path: Path) -> None:
    process = start(world, tmp_path, "unset", BUCKETD_CONCURRENCY="none")
    assert await process.wait_exit(20) == 2
    assert "BUCKETD_CONCURRENCY" in process.output()
    assert "Traceback" not in process.output()
