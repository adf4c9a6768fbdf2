"""How late first calls begin: by Postgres's clock, for a runner has none of its own that could be compared with `due`.

The statement that takes a run says how long ago it was due (or how long it still is to it, which is negative). The runner counts from
before it sent that statement, so what it shows is too much by the way there, and never too little.
"""

from __future__ import annotations

from collections.abc import Sequence

from bucketd.runner.run import Run
from bucketd.store.exposition import Histogram
from bucketd.store.metrics import LATENESS_S


class Lateness:
    """Of all calls of this process: `of_fires` came through Redis, `of_rows` were deferred, held or waiting before."""

    def __init__(self) -> None:
        self.of_fires = Histogram(LATENESS_S)
        self.of_rows = Histogram(LATENESS_S)

    def begun(self, runs: Sequence[Run], now: float) -> None:
        """A request that carries these runs is sent now, by `monotonic()`. Costs 0.1 us a run."""
        fires: list[float] = []
        rows: list[float] = []
        for run in runs:
            if run.due_at is not None:
                (rows if run.claim.woken else fires).append(now - run.due_at)
        self.of_fires.observe_all(fires)
        self.of_rows.observe_all(rows)
