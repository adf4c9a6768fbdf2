"""The cluster's clock is Postgres's. A process carries it as an offset to its own monotonic clock.

The clock of boot time is used because it goes on while a laptop or a VM is suspended: a lease must not outlive a sleep.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic() -> float:
    """Seconds since boot, suspension included. For differences only."""
    return time.clock_gettime(_BOOT)


def wall() -> float:
    """Seconds since the epoch by this machine's own clock. For display and for comparing with the cluster's clock only."""
    return time.time()


def utc(epoch_s: float) -> datetime:
    """The aware UTC datetime of an instant in epoch seconds."""
    return datetime.fromtimestamp(epoch_s, UTC)


SET_S = 0.5  # a smaller step may be drift since the last reading


class Clock:
    """Reads the cluster's time without asking Postgres.

    `now()` never runs ahead of Postgres (but for drift since the last reading): the reading is dated by the moment its
    answer arrived, so it lags by the answer's way back, and nobody fires early because a network was slow.
    """

    def __init__(self) -> None:
        self._offset_s: float | None = None
        self._round_trip_s = float("inf")
        self._read_at = 0.0

    def observe(self, postgres_s: float, asked_at: float, answered_at: float) -> None:
        """Takes a reading of Postgres's clock (epoch seconds) that was asked and answered at these `monotonic()` seconds.

        A reading that took far longer than the best recent one is ignored for a minute: it knows less. Not one that no delay
        explains, whichever way it took: Postgres's clock was set.
        """
        round_trip_s = answered_at - asked_at
        behind_s = (
            postgres_s - answered_at - (self._offset_s or 0.0)
        )  # of our offset; at most the old and minus the new delay
        was_set = behind_s > self._round_trip_s + SET_S or behind_s < -round_trip_s - SET_S
        if round_trip_s <= self._round_trip_s * 2 or answered_at - self._read_at > 60 or was_set:
            self._offset_s = postgres_s - answered_at
            self._round_trip_s = max(round_trip_s, 0.0002)
            self._read_at = answered_at

    @property
    def synchronised(self) -> bool:
        """Whether Postgres was ever asked."""
        return self._offset_s is not None

    def now(self) -> float:
        """Epoch seconds of the cluster, at most Postgres's own."""
        if self._offset_s is None:
            raise RuntimeError("expected a reading of Postgres's clock before now(), got none; call observe() first")
        return monotonic() + self._offset_s

    def skew_s(self) -> float:
        """How far this machine's wall clock is ahead of the cluster's, seconds (negative: behind)."""
        return wall() - self.now()
