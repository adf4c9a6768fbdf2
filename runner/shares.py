"""How much of a runner's concurrency each host may use, so that one that hangs takes its share and no more. Pure: no I/O.

A call that waits for its time-out holds its place for half a minute, and a fast host becomes a slow one at any moment, with all
calls that it has then. So what a host may have is less than all before it is slow, and less still when it is:
- alone (no other host was called within the last minute): three quarters, half if it is slow; the rest is for the first who comes;
- beside others: half;
- slow (its calls take over a second, or the oldest one does) beside others: a quarter, and all slow ones together half. But one call
  each, always.
"""

from __future__ import annotations

SLOW_S = 1.0
ALONE_S = 60.0
WEIGHT = 0.2  # of the last call in a host's mean
REMEMBERED = 10_000  # hosts; those without a call are forgotten beyond


class Pace:
    """Calls in flight of one host or target, and how long they take. All times are monotonic seconds."""

    __slots__ = ("_calls", "_mean_s", "_token")

    def __init__(self) -> None:
        self._calls: dict[int, float] = {}  # token -> begun at; the oldest stands first
        self._mean_s = 0.0
        self._token = 0

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def begin(self, now: float) -> int:
        """A call begins; the token by which it ends."""
        self._token += 1
        self._calls[self._token] = now
        return self._token

    def end(self, token: int, now: float) -> None:
        """That call has ended."""
        self._mean_s += (now - self._calls.pop(token) - self._mean_s) * WEIGHT

    def is_slow(self, now: float) -> bool:
        """Whether a place may not come free soon: the oldest call waits, or the last ones took, over SLOW_S."""
        oldest = next(iter(self._calls.values()), now)
        return now - oldest > SLOW_S or self._mean_s > SLOW_S


class Shares:
    """Calls in flight by host. All times are monotonic seconds."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._hosts: dict[str, Pace] = {}
        self._last = ""
        self._others_at = float("-inf")  # when another host was called than just before
        self.in_flight = 0

    def begin(self, host: str, now: float) -> int:
        """A call begins; the token by which it ends."""
        if host != self._last:
            self._others_at = now if self._last else self._others_at
            self._last = host
        pace = self._hosts.get(host)
        if pace is None:
            self._forget()
            pace = self._hosts[host] = Pace()
        self.in_flight += 1
        return pace.begin(now)

    def end(self, host: str, token: int, now: float) -> None:
        """That call has ended."""
        self._hosts[host].end(token, now)
        self.in_flight -= 1

    def room(self, host: str, now: float) -> int:
        """How many more calls of this host may begin now."""
        free = self._concurrency - self.in_flight
        pace = self._hosts.get(host)
        if pace is None:
            return min(free, max(1, self._concurrency // 2))
        slow = pace.is_slow(now)
        if host == self._last and now - self._others_at > ALONE_S:
            room = self._concurrency - self._concurrency // 4 - pace.in_flight
        else:
            room = self._concurrency // (4 if slow else 2) - pace.in_flight
        if slow:
            room = min(room, self._concurrency // 2 - self._slow(now))
        return min(free, max(room, 0 if pace.in_flight else 1))

    def is_slow(self, host: str, now: float) -> bool:
        """Whether a place there may not come free soon."""
        pace = self._hosts.get(host)
        return pace is not None and pace.is_slow(now)

    def _slow(self, now: float) -> int:
        return sum(pace.in_flight for pace in self._hosts.values() if pace.in_flight and pace.is_slow(now))

    def _forget(self) -> None:
        if len(self._hosts) >= REMEMBERED:
            self._hosts = {name: pace for name, pace in self._hosts.items() if pace.in_flight}
