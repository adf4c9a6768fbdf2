"""Ends the process when a call is long past its deadline: then the event loop itself hangs, and nothing in it can close the call.

The lease runs out like that of any dead runner, and others make the next attempts. A thread, because a hung loop runs nothing; it
looks at numbers only, takes no lock that the loop could hold, and leaves without cleaning up, as kill -9 would.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from bucketd.store.clock import monotonic
from bucketd.store.log import warn

GRACE_S = 30.0  # beyond a deadline that the loop itself keeps to within milliseconds
LOOK_S = 1.0
SLEPT_S = 5.0  # this thread too has missed so much: the whole process stood still
EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h: a supervisor starts it again


class Watchdog:
    """Looks at the earliest deadline of the calls in flight, from a thread of its own."""

    def __init__(
        self, earliest: Callable[[], float | None], *, grace_s: float = GRACE_S, look_s: float = LOOK_S
    ) -> None:
        """`earliest`: the first deadline by `monotonic()`, None if nothing is in flight; is called from the thread."""
        self._earliest = earliest
        self._grace_s = grace_s
        self._look_s = look_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; harmless if it never began."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        looked_at = since = monotonic()
        while not self._stop.wait(self._look_s):
            now = monotonic()
            if now - looked_at > self._look_s + SLEPT_S:
                since = now
            looked_at = now
            overdue_s = overdue(self._earliest(), since, now)
            if overdue_s > self._grace_s:
                warn("call_overdue", overdue_s=overdue_s, grace_s=self._grace_s, exit_code=EXIT_CODE)
                os._exit(EXIT_CODE)


def overdue(deadline: float | None, since: float, now: float) -> float:
    """Seconds that the loop has let a deadline pass, not counting what lies before `since`: the process stood still until then
    (SIGSTOP, a closed lid), and the loop with it."""
    return 0.0 if deadline is None else now - max(deadline, since)
