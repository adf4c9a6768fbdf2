"""The loop around a service's `run_once`: when it runs again, and what it does when a store is away."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout
from redis.exceptions import RedisError

from bucketd.store.clock import monotonic
from bucketd.store.exposition import Histogram
from bucketd.store.log import event, warn
from bucketd.store.metrics import DURATION_S, DUTIES

# What passes by itself: a store that is away, restarts, fails over or is slow. What Postgres refuses may not pass, but it must not
# stop the other duties, here and then on every node that takes over. Anything else is a defect and ends the process.
PASSING = (RedisError, psycopg.Error, PoolTimeout, OSError, TimeoutError)
BACKOFF_MAX_S = 2.0
# Duties of one node wake together: on an idle machine the first statement after a sleep finds its caches cold and costs 20 times a
# warm one (250 us against 6 ms, measured), so seven duties at seven instants made a node that does nothing take 4 % of a core. The
# phase differs by process, so that nodes that started together do not ask the stores together.
BEAT_S = 1.0
_PHASE_S = random.random() * BEAT_S


class Record:
    """How long the turns of a node's duties took, those that failed too, and how many a store has failed."""

    def __init__(self) -> None:
        self.turns = {duty: Histogram(DURATION_S) for duty in DUTIES}
        self.failures: Counter[str] = Counter()


async def repeat(
    name: str,
    run_once: Callable[[], Awaitable[float]],
    stop: asyncio.Event,
    wake: asyncio.Event,
    *,
    exact: bool = False,
    record: Record | None = None,
) -> None:
    """Runs `run_once` until `stop` is set; it returns how many seconds to wait, which `wake` cuts short.

    Who sets `stop` sets `wake` as well. Waits end on the node's beat, at most half of one early or late; `exact` ones wait for an
    instant. A passing error is logged once, and once more with its length when the service works again. `record`: counts turns.
    """
    record = record or Record()
    failing_since: float | None = None
    failures = 0
    while not stop.is_set():
        wake.clear()
        begun = monotonic()
        try:
            pause_s = await run_once()
        except PoolClosed:
            return
        except PASSING as error:
            failures += 1
            record.failures[name] += 1
            if failing_since is None:
                failing_since = monotonic()
                warn("duty_failing", duty=name, error=f"{type(error).__name__}: {error}".splitlines()[0])
            pause_s = min(BACKOFF_MAX_S, 0.05 * 2 ** min(failures, 6))
        else:
            if failing_since is not None:
                event("duty_recovered", duty=name, after_s=monotonic() - failing_since, failures=failures)
            failing_since, failures = None, 0
        record.turns[name].observe(monotonic() - begun)
        if pause_s > 0:
            await pause(pause_s if exact else on_beat(pause_s, monotonic()), wake)
        else:
            await asyncio.sleep(0)  # a busy service must not starve the lease


def on_beat(pause_s: float, now_s: float) -> float:
    """The pause from `now_s` (monotonic) so that it ends on the nearest beat; one below a beat stays as it is.

    Nearest, not last: a timer that fires a millisecond early would run its duty twice a beat.
    """
    if pause_s < BEAT_S:
        return pause_s
    return round((now_s + pause_s - _PHASE_S) / BEAT_S) * BEAT_S + _PHASE_S - now_s


async def pause(timeout_s: float, wake: asyncio.Event) -> None:
    """Waits for an event, at most `timeout_s`. One event, not several: a task for each was a tenth of an idle node's work."""
    try:
        async with asyncio.timeout(timeout_s):
            await wake.wait()
    except TimeoutError:
        pass
