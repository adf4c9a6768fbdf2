"""What falls due in a window, as the book of specs tells it to those who plan and settle. No clock, no I/O."""

from __future__ import annotations

from typing import NamedTuple

from bucketd.store.plan import PhaseRange


class Instant(NamedTuple):
    """An occurrence: when it is due, its nominal instant, and the distance to its neighbours (None: there is none)."""

    due_s: int
    at_s: int
    previous_s: int | None
    next_s: int | None


class WholeDue(NamedTuple):
    """A cron that fires at `at_s`: every schedule of it without jitter is due then."""

    spec_id: int
    at_s: int
    previous_s: int | None
    next_s: int | None


class RangeDue(NamedTuple):
    """A spec of which the schedules with a due phase in [lo, hi) are due in the window. `cron`: the one instant meant."""

    spec_id: int
    lo: int
    hi: int
    cron: WholeDue | None

    @property
    def phases(self) -> PhaseRange:
        """The question to the planner's index."""
        return PhaseRange(self.spec_id, self.lo, self.hi)


class DueSpecs(NamedTuple):
    """What fires in a window [start_s, end_s) of due."""

    start_s: int
    end_s: int
    whole: list[WholeDue]
    ranges: list[RangeDue]
