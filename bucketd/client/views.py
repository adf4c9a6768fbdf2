"""From what is stored to what the client shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from bucketd.client.results import Schedule
from bucketd.client.timings import At, Cron, Every, Timing
from bucketd.store.schedules import StoredSchedule


def schedule(stored: StoredSchedule) -> Schedule:
    """The schedule with its timing in words."""
    return Schedule(
        id=stored.id,
        tenant=stored.tenant,
        name=stored.name,
        timing=timing(stored),
        target=stored.target,
        payload=stored.payload,
        labels=stored.labels,
        timeout_s=stored.timeout_s,
        max_attempts=stored.max_attempts,
        retry_base_s=stored.retry_base_s,
        retry_cap_s=stored.retry_cap_s,
        overlap=stored.overlap,
        misfire=stored.misfire,
        misfire_threshold_s=stored.misfire_threshold_s,
        deadline_s=stored.deadline_s,
        jitter_s=stored.jitter_s,
        starts_at=stored.starts_at,
        ends_at=stored.ends_at,
        paused=stored.paused,
        catch_up_window_s=stored.catch_up_window_s,
        catch_up_cap=stored.catch_up_cap,
        pause_reason=stored.pause_reason if stored.paused else None,
        paused_until=stored.paused_until if stored.paused else None,
        max_runs=stored.max_runs,
        exclude=stored.exclude_dates,
        calendars=stored.calendars,
        revision=stored.revision,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )


def timing(stored: StoredSchedule) -> Timing:
    """The timing that, put again, changes nothing. Policies are the resolved ones; the expression is as typed."""
    if stored.kind == "every":
        every_s = stored.every_s or 0
        return Every(
            every_s, stored.phase, stored.expression or f"{every_s}s", json.loads(stored.rule).get("tz", "UTC")
        )
    if stored.kind == "at":
        return At(datetime.fromtimestamp(stored.phase, UTC))
    rule = json.loads(stored.rule)
    # A schedule written by raw SQL may have no text; its rule is shown instead.
    return Cron(stored.expression or stored.rule, rule["tz"], rule["gap"], rule["fold"])
