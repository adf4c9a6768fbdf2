"""What a request says besides its body: headers and time-out. Pure but for the timestamp."""

from __future__ import annotations

from importlib.metadata import version

from bucketd.store.clock import wall
from bucketd.store.runners import CallTarget

LONGEST_CALL_S = 1800.0
USER_AGENT = f"bucketd/{version('bucketd')}"


def headers_of(target: CallTarget, webhook_id: str) -> dict[str, str]:
    """Headers of every request; the target's own come first and cannot replace ours."""
    return {
        **{name.lower(): value for name, value in target.headers.items()},
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(wall())),
        "idempotency-key": webhook_id,
    }


def timeout_s(own_s: int | None, target: CallTarget) -> float:
    """The call's time-out: the schedule's own or the target's."""
    return min(float(own_s or target.timeout_s), LONGEST_CALL_S)
