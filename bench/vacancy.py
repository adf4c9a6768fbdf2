"""For how long a partition was nobody's, as Redis shows it: looked at many times a second, from a thread of its own.

A partition is somebody's while its lease and its fence carry the same token: then that node may drain. A vacancy is counted from the
last look that saw the old owner to the first that saw the new one, so never too short, and too long by up to two looks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from math import ceil
from types import TracebackType
from typing import NamedTuple, Self

import redis

from bucketd.scheduler.ring import LOAD_FACTOR
from bucketd.store.keys import PARTITIONS, Keys

LOOK_S = 0.01  # between two looks; one costs Redis 0.2 ms
# KEYS: all leases, then all fences. Returns the owner's token of each partition, or an empty text.
_OWNERS = """
local owners, n = {}, #KEYS / 2
for i = 1, n do
  local lease = redis.call('GET', KEYS[i])
  owners[i] = lease and lease == redis.call('HGET', KEYS[n + i], 'token') and lease or ''
end
return owners"""


class Look(NamedTuple):
    """The owners of all partitions (empty: nobody's), at some instant between two of `time.time()`."""

    asked_s: float
    answered_s: float
    owners: tuple[str, ...]


class Vacancy(NamedTuple):
    """One change of hands. Epoch seconds; `after` is empty if it lasts."""

    partition: int
    before: str
    after: str
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds."""
        return self.end_s - self.begin_s


class Changes:
    """Finds vacancies in looks that are given one after the other."""

    def __init__(self) -> None:
        self.found: list[Vacancy] = []
        self.last: Look | None = None
        self._seen: dict[int, tuple[str, float]] = {}  # partition -> its last owner, and when that was asked

    def add(self, look: Look) -> None:
        """The next look."""
        for partition, owner in enumerate(look.owners):
            before, seen_s = self._seen.get(partition, ("", look.asked_s))
            was_vacant = self.last is not None and not self.last.owners[partition]
            if owner and before and (owner != before or was_vacant):
                self.found.append(Vacancy(partition, before, owner, seen_s, look.answered_s))
            if owner:
                self._seen[partition] = (owner, look.asked_s)
        self.last = look

    def open(self) -> list[Vacancy]:
        """Those that last."""
        if self.last is None:
            return []
        vacant = [p for p, owner in enumerate(self.last.owners) if not owner and p in self._seen]
        return [Vacancy(p, self._seen[p][0], "", self._seen[p][1], self.last.answered_s) for p in vacant]


class Watcher:
    """Looks until the end of the block."""

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(redis_url, decode_responses=True)
        keys = Keys()
        self._look = self._redis.register_script(_OWNERS)
        self._keys = [*map(keys.lease, range(PARTITIONS)), *map(keys.fence, range(PARTITIONS))]
        self._changes = Changes()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._error: BaseException | None = None
        self.looks = 0

    def __enter__(self) -> Self:
        self._changes.add(self._now())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._redis.close()

    def owners(self) -> Counter[str]:
        """Partitions by owner, as of the last look; those that are nobody's by the empty text. Raises what the thread has met."""
        with self._lock:
            if self._error:
                raise RuntimeError("the watcher has ended") from self._error
            assert self._changes.last is not None
            return Counter(self._changes.last.owners)

    def since(self, begin_s: float) -> list[Vacancy]:
        """Vacancies that ended after `begin_s`, and those that last."""
        with self._lock:
            return [one for one in self._changes.found if one.end_s >= begin_s] + self._changes.open()

    def _watch(self) -> None:
        try:
            while not self._ended.wait(LOOK_S):
                look = self._now()
                with self._lock:
                    self._changes.add(look)
                    self.looks += 1
        except BaseException as error:
            self._error = error

    def _now(self) -> Look:
        asked_s = time.time()
        owners: Sequence[str] = self._look(keys=self._keys)
        return Look(asked_s, time.time(), tuple(owners))


def balanced(owners: Counter[str], nodes: int) -> bool:
    """Whether so many nodes own everything among them, and none more than the ring's bound allows: then each owns its share."""
    return not owners[""] and len(+owners) == nodes and max(owners.values()) <= ceil(LOAD_FACTOR * PARTITIONS / nodes)
