"""The client library: `Client` and `AsyncClient`, what they take and what they return."""

from bucketd.client.async_client import AsyncClient
from bucketd.client.client import Client
from bucketd.client.inputs import ScheduleInput
from bucketd.client.inventory import Backlog, Waiting
from bucketd.client.results import Page, PutResult, Schedule
from bucketd.client.timings import At, Cron, Every, Timing, at, cron, every
from bucketd.explain.answer import Answer, Verdict
from bucketd.forecast.results import Forecast, Load, Peak, Share, Spread
from bucketd.store.audit import Change
from bucketd.store.backfills import Backfill
from bucketd.store.breakers import OpenBreaker
from bucketd.store.calendars import Calendar
from bucketd.store.dead_letters import DeadLetter, Replayed
from bucketd.store.history import Run
from bucketd.store.holds import Hold, Release
from bucketd.store.model import RunStatus
from bucketd.store.secrets import Resealed
from bucketd.store.status import Status
from bucketd.store.targets import Target
from bucketd.store.tenants import Tenant
from bucketd.store.waiting import Dropped

__all__ = [
    "Answer",
    "AsyncClient",
    "At",
    "Backfill",
    "Backlog",
    "Calendar",
    "Change",
    "Client",
    "Cron",
    "DeadLetter",
    "Dropped",
    "Every",
    "Forecast",
    "Hold",
    "Load",
    "OpenBreaker",
    "Page",
    "Peak",
    "PutResult",
    "Release",
    "Replayed",
    "Resealed",
    "Run",
    "RunStatus",
    "Schedule",
    "ScheduleInput",
    "Share",
    "Spread",
    "Status",
    "Target",
    "Tenant",
    "Timing",
    "Verdict",
    "Waiting",
    "at",
    "cron",
    "every",
]
