"""Which attempt of a run came last: what tells a late message of a runner that was given up from the one that goes on.

The attempt is a fencing token: a lower one than was seen is refused. An equal one is let through: bucketd sends each attempt once,
so it is the same request again, repeated by something in between after a lost connection, and to refuse it would answer in place of
the first one, whose answer was lost: the run would count as failed for good although it was done. Doing nothing twice is the task
of whoever does it, by `run_id`, for a higher attempt may find the work done as well.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Protocol

MOST = 50_000  # runs remembered, about 10 MB; a runner that was given up is heard of within minutes


class Attempts(Protocol):
    """Where attempts are remembered. Several processes behind one address need one that they share."""

    def raise_to(self, run_id: str, attempt: int) -> bool:
        """Notes, in one step, that this attempt of the run has come. False: a later one has come before."""
        ...


class RecentAttempts:
    """In the memory of this process, of the runs heard of last. Safe among threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def raise_to(self, run_id: str, attempt: int) -> bool:
        """See Attempts."""
        with self._lock:
            newest = max(attempt, self._seen.get(run_id, 0))
            self._seen[run_id] = newest
            self._seen.move_to_end(run_id)
            if len(self._seen) > self._most:
                self._seen.popitem(last=False)
        return attempt == newest
