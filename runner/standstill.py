"""Pending messages whose idle time stands still. Pure: no clock, no I/O.

Redis counts how long a message was left alone by its wall clock. When that is set back, or a replica whose clock is behind takes over, what
was delivered before seems to be delivered in the future: it would not go to another runner for as long as the clock went back, and
what waits for it (settling, the room in the queue) would wait with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketd.store.queues import Pending

LEAST_LOOK_S = 0.05  # between looks that are compared: idle times are whole milliseconds


class Standstill:
    """Compares each look at the pending messages with the one before."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, bytes], Pending] = {}
        self._answered_at = float("-inf")

    def found(self, pending: Iterable[Pending], asked_at: float, answered_at: float) -> list[Pending]:
        """Those that nobody has touched since the last look, and that did not grow older by half of the time since then; with the idle
        time that they should have. That is counted on from the last look: another runner that sees it grow does not set it again.

        `asked_at`, `answered_at`: of this look, seconds of a clock that nobody sets. Between the last answer and this question is the
        least that has passed for Redis.
        """
        seen = {(one.stream, one.entry_id): one for one in pending}
        passed_ms = (asked_at - self._answered_at) * 1000
        before, self._before, self._answered_at = self._before, seen, answered_at
        if passed_ms < LEAST_LOOK_S * 1000:
            return []
        return [
            one._replace(idle_ms=before[key].idle_ms + int(passed_ms))
            for key, one in seen.items()
            if key in before and _stands(before[key], one, passed_ms)
        ]


def _stands(before: Pending, now: Pending, passed_ms: float) -> bool:
    untouched = (before.consumer, before.deliveries) == (now.consumer, now.deliveries)
    return untouched and now.idle_ms - before.idle_ms < passed_ms / 2
