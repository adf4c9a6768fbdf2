"""What the recording target has written so far, read while it goes on writing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bucketd.demo.expect import Occurrence


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call as the target saw it; `arrived_s` in epoch seconds of this machine's clock."""

    arrived_s: float
    run_id: str
    attempt: int
    occurrence: Occurrence

    @property
    def lateness_s(self) -> float:
        """From the instant it was scheduled for to the begin of the call; negative: early."""
        return self.arrived_s - self.occurrence[2]


class DeliveryLog:
    """All deliveries, in order of arrival; `read` adds what is new."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._stream = path.open("rb")
        self._rest = b""
        self.all: list[Delivery] = []
        self.occurrences: set[Occurrence] = set()

    def read(self) -> list[Delivery]:
        """What came since the last call. A line that is written in part is left for the next one."""
        *lines, self._rest = (self._rest + self._stream.read()).split(b"\n")
        new = [_delivery(line) for line in lines]
        self.all += new
        self.occurrences.update(delivery.occurrence for delivery in new)
        return new

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


def _delivery(line: bytes) -> Delivery:
    arrived_s, run_id, attempt, tenant, schedule, scheduled_at = json.loads(line)
    at_s = int(datetime.fromisoformat(scheduled_at).timestamp())
    return Delivery(arrived_s, run_id, attempt, (tenant, schedule, at_s))
