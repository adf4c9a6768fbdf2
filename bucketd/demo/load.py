"""Hands jobs to the client library, as an application would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bucketd.client import Client, ScheduleInput, at, cron, every
from bucketd.client.timings import Timing
from bucketd.demo.seed import Job
from bucketd.demo.stage import DemoError

TARGET = "recorder"


def put(client: Client, jobs: Sequence[Job], progress: Callable[[int, int], None]) -> None:
    """Creates all of them. Raises DemoError if one is refused."""
    results = client.schedules.put_many([_input(job) for job in jobs], progress=progress)
    refused = [result for result in results if result.status == "invalid"]
    if refused:
        raise DemoError(f"expected {len(jobs)} schedules to be created, got {len(refused)} refused, e.g. {refused[0]}")


def _input(job: Job) -> ScheduleInput:
    return ScheduleInput(
        name=job.name,
        timing=_timing(job),
        target=TARGET,
        tenant=job.tenant,
        payload=job.payload,
        labels=job.labels,
        overlap="allow",  # the ledger counts each occurrence, also while a killed runner's attempt is not found out yet
        starts_at=_instant(job.starts_s),
        ends_at=_instant(job.ends_s),
    )


def _timing(job: Job) -> Timing:
    if job.cron is not None:
        return cron(job.cron, tz=job.zone)
    if job.every_s is not None:
        return every(job.every_s, phase=job.phase_s)
    assert job.at_s is not None
    return at(datetime.fromtimestamp(job.at_s, UTC))


def _instant(at_s: int | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
