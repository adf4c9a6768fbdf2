"""One log line when a store begins to fail and one when it is back; jittered pauses in between."""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum, auto

import psycopg

from bucketd.store.clock import monotonic
from bucketd.store.log import event, warn

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
FAILURES: Counter[str] = Counter()  # tries that failed, by part, since this process began
# SQLSTATE classes in which the batch is innocent: connection, a primary no more, transaction rollback, resources, operator, system,
# lock.
_PASSING = ("08", "25006", "40", "53", "55", "57", "58")


class Outage:
    """The health of one store as one part of the runner meets it."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._since: float | None = None
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Notes a failure; seconds to wait before the next try (full jitter, so that runners do not come back in step)."""
        if self._since is None:
            self._since = monotonic()
            warn("store_failing", part=self.what, error=type(error).__name__, text=str(error).split("\n")[0][:200])
        self._failures += 1
        FAILURES[self.what] += 1
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 20))
        return random.uniform(FIRST_PAUSE_S / 2, longest)

    @property
    def lasts(self) -> bool:
        """Whether the last try failed."""
        return self._since is not None

    def recovered(self) -> bool:
        """Notes a success; whether it is the first after failures."""
        if self._since is None:
            return False
        event("store_recovered", part=self.what, failures=self._failures, lasted_s=monotonic() - self._since)
        self._since = None
        self._failures = 0
        return True


class Cause(Enum):
    """Why a statement failed."""

    PASSING = auto()  # send the same again
    ROW = auto()  # some row of the batch; without it the rest may pass


def cause(error: psycopg.Error) -> Cause:
    """Cause of a statement's failure. An error without SQLSTATE never reached the server or lost its reply."""
    state = error.sqlstate
    if state is None:
        return Cause.PASSING if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else Cause.ROW
    return Cause.PASSING if state.startswith(_PASSING) else Cause.ROW
