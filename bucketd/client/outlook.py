"""The forecast, from checked arguments to the operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bucketd.client import checks
from bucketd.errors import NotFound
from bucketd.forecast.report import forecast
from bucketd.forecast.results import Forecast
from bucketd.forecast.survey import Question
from bucketd.store import targets
from bucketd.store.forecast import LONGEST_JITTER_S, Scope
from bucketd.store.operation import Operation

KINDS = ("tenant", "target", "partition")


def outlook(
    hours: int,
    by: str,
    tenant: str | None,
    target: str | None,
    labels: Mapping[str, str] | None,
    top: int,
    jitter_s: int,
    progress: Callable[[int, int], None] | None,
) -> Operation[Forecast]:
    """What falls due. Raises InvalidInput, NotFound (target)."""
    checks.integer(hours, "hours", 1, 48)
    checks.choice(by, "by", KINDS)
    checks.integer(top, "top", 1, 200)
    checks.integer(jitter_s, "jitter_s", 1, LONGEST_JITTER_S)
    if tenant is not None:
        checks.name(tenant, "tenant")
    text = checks.labels(labels) if labels else None
    target_id = None
    if target is not None:
        target_id = (yield from targets.ids([checks.name(target, "target")])).get(target)
        if target_id is None:
            raise NotFound(f"expected the name of a target, got {target!r}, which does not exist")
    return (yield from forecast(Question(hours, by, Scope(tenant, target_id, text), top, jitter_s, progress)))
