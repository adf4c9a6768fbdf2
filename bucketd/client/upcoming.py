"""Occurrences of one schedule that lie ahead: listing, skipping the next, and a run beside them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import ceil, floor

from bucketd.errors import Conflict
from bucketd.store import audit, schedules
from bucketd.store.model import run_id
from bucketd.store.operation import Operation
from bucketd.store.schedules import StoredSchedule
from bucketd.timing import load_rule, next_fire

# Days of runs are made in one piece, so an occurrence far ahead would cost a table for each day until then.
SKIP_AHEAD = timedelta(days=62)
_LOOK = 64


def occurrences(stored: StoredSchedule, now_s: float) -> Iterator[datetime]:
    """Instants that are still to come (by `due`, so jitter counts), whether or not the schedule is paused."""
    spec = load_rule(stored.rule)
    after_s = floor(now_s - stored.jitter_offset_s)
    earliest_s = max(stored.floor_s, stored.timing_from_s, stored.starts_at.timestamp() if stored.starts_at else 0)
    after_s = max(after_s, ceil(earliest_s) - 1)
    while True:
        fire_s = next_fire(spec, after_s, stored.phase)
        if fire_s is None or (stored.ends_at and fire_s >= stored.ends_at.timestamp()):
            return
        yield datetime.fromtimestamp(fire_s, UTC)
        after_s = fire_s


def next_runs(tenant: str, name: str, n: int) -> Operation[list[datetime]]:
    """The next `n` occurrences that no user skipped; fewer if the schedule ends. Raises NotFound."""
    stored = yield from schedules.get(tenant, name)
    ahead = occurrences(stored, (yield from schedules.now_s()))
    found: list[datetime] = []
    while len(found) < n:
        some = _some(ahead, max(_LOOK, n))
        taken = yield from schedules.taken(stored.id, some)
        found += [at for at in some if not taken.get(at)]
        if len(some) < max(_LOOK, n):
            break
    return found[:n]


def skip_next(tenant: str, name: str) -> Operation[datetime]:
    """Takes the key of the next occurrence that has no run yet. Raises NotFound, and Conflict if there is none in reach."""
    stored = yield from schedules.get(tenant, name)
    known = yield from schedules.days()
    for at in occurrences(stored, known.now.timestamp()):
        if at - known.now > SKIP_AHEAD:
            raise Conflict(
                f"the next occurrence of {name!r} is at {at:%Y-%m-%dT%H:%M:%SZ}, more than {SKIP_AHEAD.days} days ahead;"
                " set starts_at behind it instead"
            )
        yield from schedules.make_days(known, at, at)
        if (yield from schedules.skip(stored.id, at)):
            yield from audit.note("skip", tenant, name, run_id(stored.id, at))
            return at
        known = yield from schedules.days()
    raise Conflict(f"schedule {name!r} has no occurrence ahead that could be skipped")


def trigger(tenant: str, name: str) -> Operation[str]:
    """A run that starts now, beside the schedule's occurrences; its run id. Raises NotFound."""
    while True:
        known = yield from schedules.days()
        yield from schedules.make_days(known, known.now, known.now + timedelta(minutes=1))
        key = yield from schedules.trigger(tenant, name)
        if key:
            yield from audit.note("trigger", tenant, name, run_id(*key))
            return run_id(*key)
        yield from schedules.get(tenant, name)  # raises if it is missing; else its key of this microsecond was taken


def _some(ahead: Iterator[datetime], limit: int) -> list[datetime]:
    return [at for _, at in zip(range(limit), ahead, strict=False)]
