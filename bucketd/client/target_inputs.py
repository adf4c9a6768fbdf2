"""What a target is put from, and the checks of a whole one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from bucketd.client import checks, endpoint
from bucketd.errors import InvalidInput

Body: TypeAlias = Literal["envelope", "raw"]
BODIES = ("envelope", "raw")


def target_values(
    name: str,
    url: str,
    *,
    headers: Mapping[str, str] | None,
    connect_timeout_s: float,
    timeout_s: float,
    max_attempts: int,
    retry_base_s: float,
    retry_cap_s: float,
    batch_max: int,
    batch_linger_ms: int,
    batch_by_tenant: bool,
    body: str,
    max_running: int | None,
    rate_per_s: float | None,
    complete_within_s: int | None,
    dead_hook_url: str | None,
) -> dict[str, Any]:
    """Checked columns of a target. Raises InvalidInput for the first that is wrong."""
    values = {
        "name": checks.name(name, "name"),
        "url": endpoint.url(url),
        "headers": endpoint.headers(headers or {}),
        "connect_timeout_s": checks.number(connect_timeout_s, "connect_timeout_s", 0.001, 60),
        "timeout_s": checks.number(timeout_s, "timeout_s", 0.001, 1_800),
        "max_attempts": checks.attempts(max_attempts),
        "retry_base_s": checks.retry_base(retry_base_s),
        "retry_cap_s": checks.retry_cap(retry_cap_s),
        "batch_max": checks.integer(batch_max, "batch_max", 1, 10_000),
        "batch_linger_ms": checks.integer(batch_linger_ms, "batch_linger_ms", 0, 60_000),
        "batch_by_tenant": checks.flag(batch_by_tenant, "batch_by_tenant"),
        "body": checks.choice(body, "body", BODIES),
        "max_running": None if max_running is None else checks.max_running(max_running),
        "rate_per_s": None if rate_per_s is None else checks.number(rate_per_s, "rate_per_s", 0.001, 1_000_000),
        "complete_within_s": None
        if complete_within_s is None
        else checks.integer(complete_within_s, "complete_within_s", 1, 604_800),
        "dead_hook_url": None if dead_hook_url is None else endpoint.url(dead_hook_url, "dead_hook_url"),
    }
    if body == "raw" and batch_max > 1:
        raise InvalidInput(
            f"expected batch_max 1 with body raw, got {batch_max}: payloads alone do not say which run each belongs to;"
            " keep body envelope for batches",
            field="body",
        )
    return values
