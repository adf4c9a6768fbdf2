"""The schedules of the bench, and what each of them has to send, by plain arithmetic and apart from the engine.

Ordinary ones, with default policies: hourly, of 50 tenants in 20 zones, each with a payload of its own. All of them have an
occurrence at one instant, and none within the hour before and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bucketd.client import ScheduleInput, cron, every
from bucketd.client.timings import Timing

TENANTS = 50
HOUR_S = 3_600
TARGET = "bench"
# Whole hours away from UTC, so that an hourly rule of any of them meets the same instants.
ZONES = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Athens", "Europe/Lisbon", "Africa/Cairo", "Africa/Lagos", "Asia/Dubai",
    "Asia/Tokyo", "Asia/Singapore", "Asia/Bangkok", "Asia/Shanghai", "America/New_York", "America/Chicago", "America/Denver",
    "America/Los_Angeles", "America/Sao_Paulo", "America/Bogota", "Pacific/Auckland", "Australia/Brisbane",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """`fires` schedules that are due once, at `due_s` (epoch seconds). `crons`: two thirds of them are crons, for which
    `due_s` must begin a minute; else all are intervals."""

    fires: int
    due_s: int
    crons: bool

    def schedules(self, start: int, stop: int) -> list[ScheduleInput]:
        """Schedules number [start, stop)."""
        by_zone = self._timings()
        return [
            ScheduleInput(
                name=name(i),
                tenant=tenant(i),
                target=TARGET,
                payload=payload(i),
                timing=by_zone[i % TENANTS % len(ZONES)] if self.crons and i % 3 else by_zone[-1],
            )
            for i in range(start, stop)
        ]

    def _timings(self) -> list[Timing]:
        """A cron for each zone, and the interval."""
        rule = f"{self.due_s // 60 % 60} * * * *"
        return [*(cron(rule, tz=zone) for zone in ZONES), every(HOUR_S, phase=self.due_s % HOUR_S)]

    def wrong(self, run: dict[str, Any]) -> str:
        """What is wrong with this object of a request's body; empty: nothing."""
        number = number_of(str(run.get("schedule")))
        if number is None or not 0 <= number < self.fires:
            return f"schedule {run.get('schedule')!r}"
        expected = {
            "tenant": tenant(number),
            "payload": payload(number),
            "scheduled_at": _iso(self.due_s),
            "previous_at": _iso(self.due_s - HOUR_S),
            "next_at": _iso(self.due_s + HOUR_S),
            "attempt": 1,
        }
        for field, value in expected.items():
            if run.get(field) != value:
                return f"{field}: expected {value!r}, got {run.get(field)!r}"
        return ""


def name(number: int) -> str:
    return f"usage-report-{number:07d}"


def number_of(schedule: str) -> int | None:
    """The number in a schedule's name; None: it is none of ours."""
    digits = schedule.removeprefix("usage-report-")
    return int(digits) if digits.isdecimal() and name(int(digits)) == schedule else None


def tenant(number: int) -> str:
    return f"tenant-{number % TENANTS:02d}"


def payload(number: int) -> dict[str, Any]:
    """About 100 bytes of JSON."""
    return {
        "account": 10_000_000 + number,
        "report": "usage",
        "format": "csv",
        "notify": [f"owner+{number}@example.com"],
    }


def _iso(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
