"""What has to happen, worked out by asking each second or minute in turn. Shares no code with the engine's time rules.

Understands what the seed uses: five cron fields of `*`, `*/n`, numbers, ranges and lists; no day-of-month together with
a day-of-week, and no instant inside a skipped or repeated hour for the daily jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache

from bucketd.demo.seed import Job, zone

Occurrence = tuple[str, str, int]  # tenant, schedule, instant in epoch seconds


def occurrences(jobs: Iterable[Job], from_s: int, until_s: int) -> set[Occurrence]:
    """Every occurrence of the jobs in [from_s, until_s)."""
    return {(job.tenant, job.name, at_s) for job in jobs for at_s in instants(job, from_s, until_s)}


def instants(job: Job, from_s: int, until_s: int) -> Iterator[int]:
    """Instants of one job in [from_s, until_s), ascending."""
    if job.starts_s is not None:
        from_s = max(from_s, job.starts_s)
    if job.ends_s is not None:
        until_s = min(until_s, job.ends_s)
    if job.cron is not None:
        yield from (minute for minute in _minutes(from_s, until_s) if _matches(job.cron, job.zone, minute))
    elif job.every_s is not None:
        yield from (second for second in range(from_s, until_s) if second % job.every_s == job.phase_s)
    elif job.at_s is not None and from_s <= job.at_s < until_s:
        yield job.at_s


def _minutes(from_s: int, until_s: int) -> range:
    return range(from_s + -from_s % 60, until_s, 60)


@cache
def _matches(cron: str, zone_name: str, minute_s: int) -> bool:
    local = datetime.fromtimestamp(minute_s, _zone(zone_name))
    shown = (local.minute, local.hour, local.day, local.month, local.isoweekday() % 7)
    return all(_holds(item, value) for item, value in zip(cron.split(), shown, strict=True))


@cache
def _holds(item: str, value: int) -> bool:
    return any(_part_holds(part, value) for part in item.split(","))


def _part_holds(part: str, value: int) -> bool:
    span, _, step = part.partition("/")
    low, _, high = ("0", "", "59") if span == "*" else span.partition("-")
    return int(low) <= value <= int(high or low) and (value - int(low)) % int(step or 1) == 0


_zone = cache(zone)
