"""A schedule as the workload wants it, and its timing as the client library takes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bucketd.client import At, Cron, Every, at, cron, every
from tests.support.edit_model import Timing


@dataclass(frozen=True)
class Planned:
    """A schedule to be put. `options`: columns beside timing and jitter; its payload says whose it is."""

    tenant: str
    name: str
    timing: Timing
    options: dict[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, Any]:
        """Keywords of a put, but for name, tenant and timing."""
        payload = {"whose": f"{self.tenant}/{self.name}"}
        return {"payload": payload, "jitter_s": self.timing.jitter_s, "overlap": "allow", **self.options}


def client_timing(timing: Timing) -> At | Cron | Every:
    """Its rule; the jitter is a column."""
    if timing.every_s is not None:
        return every(timing.every_s, phase=timing.phase_s)
    return cron(timing.cron) if timing.cron is not None else at(datetime.fromtimestamp(timing.phase_s, UTC))
