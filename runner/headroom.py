"""How many calls one tenant may have in flight beside others: fewer while this process cannot keep up with its own loop. Pure, but
for `run`.

Each call needs a dozen turns of the loop, and a turn takes as long as what all the others want done in it: with a tenant's 256 calls
of a fast target in flight, everybody else's calls begin a quarter of a second later, although nothing waits anywhere. So the lag of
the loop governs what one tenant may have of it: additive increase, multiplicative decrease, as TCP shares a line. A slow target
costs no turns, and no allowance; a tenant with few calls has them all; one that is alone is not held back.
"""

from __future__ import annotations

import asyncio

from bucketd.store.clock import monotonic

TICK_S = 0.02
LAG_S = 0.004  # of a turn: a call's dozen turns then cost 50 ms
LEAST = 8  # calls of a tenant, whatever the lag is: it may be somebody else's processor time
SHRINK = 0.85  # a tick that came late
GROW = 1.0  # calls a tick that came in time: to 256 in 5 s
FEW = 16  # calls in flight that cannot hold anybody up


class Headroom:
    """Grows and shrinks the allowance."""

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._allowance = float(most)
        self._wanted = asyncio.Event()

    @property
    def allowance(self) -> int:
        """Calls that one tenant may have in flight beside others."""
        return int(self._allowance)

    def ticked(self, lag_s: float) -> None:
        """A tick came so late."""
        if lag_s > LAG_S:
            self._allowance = max(self._allowance * SHRINK, min(float(LEAST), self._most))
        else:
            self._allowance = min(self._allowance + GROW, self._most)

    def begun(self, in_flight: int) -> None:
        """A call has begun beside so many."""
        if in_flight > FEW:
            self._wanted.set()

    async def run(self) -> None:
        """Ticks while many calls are in flight, and until the allowance is whole again: an idle runner sleeps."""
        while True:
            await self._wanted.wait()
            due = monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self.ticked(monotonic() - due)
            if self._allowance == self._most:
                self._wanted.clear()
