"""The loop around a service's `run_once`: when it runs again, and what it does when a store is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout
from redis.exceptions import RedisError

from bucketd.store.clock import monotonic
from bucketd.store.log import event, warn

# What passes by itself: a store that is away, restarts, fails over or is slow. What Postgres refuses may not pass, but it must not
# stop the other duties, here and then on every node that takes over. Anything else is a defect and ends the process.
PASSING = (RedisError, psycopg.Error, PoolTimeout, OSError, TimeoutError)
BACKOFF_MAX_S = 2.0


async def repeat(
    name: str,
    run_once: Callable[[], Awaitable[float]],
    stop: asyncio.Event,
    wake: asyncio.Event | None = None,
) -> None:
    """Runs `run_once` until `stop` is set; it returns how many seconds to wait, which `wake` cuts short.

    Periods get up to 10 % of jitter, so that nodes that started together do not ask the stores together. A passing error
    is logged once, and once more with its length when the service works again.
    """
    wake = wake or asyncio.Event()
    failing_since: float | None = None
    failures = 0
    while not stop.is_set():
        wake.clear()
        try:
            pause_s = await run_once()
        except PoolClosed:
            return
        except PASSING as error:
            failures += 1
            if failing_since is None:
                failing_since = monotonic()
                warn("duty_failing", duty=name, error=f"{type(error).__name__}: {error}".splitlines()[0])
            pause_s = min(BACKOFF_MAX_S, 0.05 * 2 ** min(failures, 6))
        else:
            if failing_since is not None:
                event("duty_recovered", duty=name, after_s=monotonic() - failing_since, failures=failures)
            failing_since, failures = None, 0
        if pause_s > 0:
            await first_of(pause_s * random.uniform(0.9, 1.0), stop, wake)
        else:
            await asyncio.sleep(0)  # a busy service must not starve the lease


async def first_of(timeout_s: float, *events: asyncio.Event) -> None:
    """Waits for the first of some events, at most `timeout_s`."""
    if any(one.is_set() for one in events):
        return
    waiters = [asyncio.ensure_future(one.wait()) for one in events]
    try:
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
