"""The client library: `Client` and `AsyncClient`, what they take and what they return."""

from bucketd.client.async_client import AsyncClient
from bucketd.client.client import Client
from bucketd.client.inputs import ScheduleInput
from bucketd.client.results import Page, PutResult, Schedule
from bucketd.client.timings import At, Cron, Every, Timing, at, cron, every
from bucketd.store.backfills import Backfill
from bucketd.store.dead_letters import DeadLetter
from bucketd.store.history import Run
from bucketd.store.holds import Hold, Release
from bucketd.store.model import RunStatus
from bucketd.store.status import Status
from bucketd.store.targets import Target

__all__ = [
    "AsyncClient",
    "At",
    "Backfill",
    "Client",
    "Cron",
    "DeadLetter",
    "Every",
    "Hold",
    "Page",
    "PutResult",
    "Release",
    "Run",
    "RunStatus",
    "Schedule",
    "ScheduleInput",
    "Status",
    "Target",
    "Timing",
    "at",
    "cron",
    "every",
]
