"""A runner whose event loop hangs ends by itself; one that is only slow does not."""

import subprocess
import sys
import textwrap
import time

import pytest

from bucketd.runner.watchdog import EXIT_CODE, overdue
from tests.support.target import Reply, Target


def child(target: Target, after: str, *, timeout_s: float = 0.2, grace_s: float = 0.5) -> subprocess.Popen[str]:
    """A process that has a call under way, and then does what `after` says in its loop."""
    program = f"""
        import asyncio, time
        from bucketd.runner.call import Caller
        from bucketd.runner.watchdog import Watchdog
        from bucketd.store.allow_list import AllowList
        from tests.runner.test_retry import TARGET
        from dataclasses import replace

        async def main():
            caller = Caller(AllowList.parse("127.0.0.1"))
            watchdog = Watchdog(caller.earliest_deadline, grace_s={grace_s}, look_s=0.05)
            watchdog.start()
            call = asyncio.create_task(caller.post(replace(TARGET, url={target.url!r}), b"", {{}}, {timeout_s}))
            await asyncio.sleep(0.1)
            {after}
            print((await call).error, flush=True)
            await asyncio.sleep(1.0)
            await caller.close()
            watchdog.stop()

        asyncio.run(main())
        """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_loop_that_hangs_ends_the_process(target: Target) -> None:
    target.script = lambda request: Reply(hang=True)
    process = child(target, "time.sleep(60)")
    begun = time.monotonic()
    _, log = process.communicate(timeout=30)
    assert process.returncode == EXIT_CODE
    assert "call_overdue" in log
    assert time.monotonic() - begun < 20


def test_a_call_that_ends_at_its_deadline_ends_nothing_else(target: Target) -> None:
    target.script = lambda request: Reply(hang=True)
    out, log = child(target, "pass").communicate(timeout=30)
    assert out == "no answer within 0.2 s\n", log


@pytest.mark.parametrize(
    ("deadline", "since", "found"),
    [
        (None, 0.0, 0.0),
        (1_010.0, 0.0, -10.0),
        (900.0, 0.0, 100.0),
        (900.0, 995.0, 5.0),  # the process was stopped until then: its loop has had five seconds
    ],
)
def test_only_what_the_loop_itself_let_pass_counts(deadline: float | None, since: float, found: float) -> None:
    assert overdue(deadline, since, 1_000.0) == found
