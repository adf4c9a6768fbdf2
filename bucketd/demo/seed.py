"""What the demo schedules: the product of seed.jsonl, and a load that is due within the next minute.

A job is plain data. `load.py` hands it to the client library, `expect.py` works out alone when it has to run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

LOAD_TENANT = "load"
PRODUCT = {"product": "seed"}  # label of everything that seed.jsonl brings


@dataclass(frozen=True, slots=True)
class Job:
    """One schedule: exactly one of `cron`, `every_s`, `at_s` is set. Instants in epoch seconds."""

    tenant: str
    name: str
    cron: str | None = None
    zone: str = "UTC"
    every_s: int | None = None
    phase_s: int = 0
    at_s: int | None = None
    starts_s: int | None = None  # its first instant is not before this ..
    ends_s: int | None = None  # .. and its last one before that
    payload: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of it: `every` is (period in s, number of schedules)."""

    tenants: int
    window_s: int
    every: tuple[tuple[int, int], ...]
    one_shots: int
    burst: int


FULL = Scale(tenants=44, window_s=60, every=((5, 200), (15, 300)), one_shots=1_000, burst=500)
QUICK = Scale(tenants=8, window_s=16, every=((2, 40), (5, 60)), one_shots=150, burst=100)


def zone(name: str) -> ZoneInfo:
    """A zone out of the pinned tzdata package: the machine's own may be years old."""
    path = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def product(scale: Scale, now_s: int) -> list[Job]:
    """For each tenant: a usage report at 09:00, a CRM sync each 15 minutes, and a trial that expires at midnight."""
    lines = (files("bucketd.demo") / "seed.jsonl").read_text(encoding="utf-8").splitlines()
    step = max(1, len(lines) // scale.tenants)
    return [job for line in lines[::step][: scale.tenants] for job in _of_tenant(json.loads(line), now_s)]


def load(scale: Scale, start_s: int) -> list[Job]:
    """Schedules due in [start_s, start_s + window): periodic ones, single ones spread out, and a burst at half-time."""
    end_s = start_s + scale.window_s
    jobs = [
        Job(LOAD_TENANT, f"every-{period}s-{i:04}", every_s=period, phase_s=i % period, starts_s=start_s, ends_s=end_s)
        for period, count in scale.every
        for i in range(count)
    ]
    singles = (start_s + i * scale.window_s // scale.one_shots for i in range(scale.one_shots))
    bursts = (burst_at(scale, start_s) for _ in range(scale.burst))
    jobs += [Job(LOAD_TENANT, f"once-{i:04}", at_s=at_s) for i, at_s in enumerate(singles)]
    jobs += [Job(LOAD_TENANT, f"burst-{i:04}", at_s=at_s) for i, at_s in enumerate(bursts)]
    return jobs


def burst_at(scale: Scale, start_s: int) -> int:
    """The instant that all one-shots of the burst share."""
    return start_s + scale.window_s // 2


def _of_tenant(line: dict[str, Any], now_s: int) -> Iterator[Job]:
    tenant, name = line["tenant"], line["zone"]
    seats, midnight_s = {"seats": line["seats"]}, _midnight(name, now_s, line["trial_days"])
    yield Job(tenant, "usage-report", cron=line["report"], zone=name, payload=seats, labels=PRODUCT)
    yield Job(tenant, "crm-sync", cron=line["sync"], zone=name, payload={"source": "crm"}, labels=PRODUCT)
    yield Job(tenant, "trial-expires", at_s=midnight_s, payload={"then": "downgrade"}, labels=PRODUCT)


def _midnight(name: str, now_s: int, days: int) -> int:
    """Epoch seconds of the next midnight but `days - 1` in that zone."""
    here = zone(name)
    day = datetime.fromtimestamp(now_s, here).date() + timedelta(days=days)
    return int(datetime(day.year, day.month, day.day, tzinfo=here).timestamp())
