"""Lines in the log while a round of planning lasts: after Redis lost everything, or at a start with millions of schedules."""

from __future__ import annotations

from bucketd.store.clock import monotonic
from bucketd.store.log import event

EVERY_S = 1.0  # a usual round is over sooner and says nothing


class Progress:
    """Of one round, which begins now."""

    def __init__(self) -> None:
        self._begun = self._told = monotonic()
        self._spoke = False
        self._fires = self._done = self._minutes = 0

    def expect(self, minutes: int) -> None:
        """So many windows of at most a minute are to be planned."""
        self._minutes = minutes

    def wrote(self, fires: int) -> None:
        """So many more fires stand in Redis."""
        self._fires += fires
        self._tell()

    def finished_minute(self) -> None:
        """One more of the windows is planned."""
        self._done += 1
        self._tell()

    def end(self) -> None:
        """The round is over: the last line, if there was a first."""
        if self._spoke:
            event("planned", minutes=self._done, fires=self._fires, took_s=monotonic() - self._begun)

    def _tell(self) -> None:
        now = monotonic()
        if now - self._told >= EVERY_S:
            self._told, self._spoke = now, True
            event("planning", minutes=f"{self._done}/{self._minutes}", fires=self._fires, took_s=now - self._begun)
