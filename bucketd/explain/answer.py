"""The answer to `why`: a code for programs, a sentence for people, and the facts behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from bucketd.store.history import Run
from bucketd.timing.words import length


class Verdict(StrEnum):
    """What became, or will become, of an occurrence; or why there is none. Stable: programs may rely on the texts."""

    # It has a row.
    FIRED = "fired"  # succeeded
    RUNNING = "running"
    RETRYING = "retrying"
    DEAD = "dead"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    HELD = "held"  # or will be: a hold covers it
    WAITING = "waiting"  # deferred to a runner, or behind another run of its schedule
    # It has none, and will or may get one.
    COUNTED = "counted"  # in the row of a later occurrence
    AHEAD = "ahead"
    QUEUED = "queued"  # fell due in the last seconds
    OWED = "owed"  # in a window that nobody watched and that is being judged
    UNSETTLED = "unsettled"  # schedulers, runners or Redis have not come to it
    QUARANTINED = "quarantined"  # its rule cannot be computed
    # It never gets one.
    NOT_IN_SPEC = "not_in_spec"
    EXCLUDED = "excluded"
    IN_GAP = "in_gap"
    IN_FOLD = "in_fold"
    NOT_YET_CREATED = "not_yet_created"
    DELETED = "deleted"
    PAUSED = "paused"
    BELOW_FLOOR = "below_floor"
    BEFORE_START = "before_start"
    AFTER_END = "after_end"
    OTHER_TIMING = "other_timing"  # an occurrence of another version of the schedule than held then
    EXPIRED = "expired"  # below retention
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `text` is a sentence, `facts` are more of them.

    asked: the instant asked about. slot: the occurrence that the answer is about (None: there is none); due: when it was to start,
    which jitter makes later. before and after: the nearest occurrences by the timing that held then. run: its row, or the row that
    counts it.
    """

    verdict: Verdict
    text: str
    facts: tuple[str, ...]
    tenant: str
    name: str
    asked: datetime
    slot: datetime | None = None
    due: datetime | None = None
    before: datetime | None = None
    after: datetime | None = None
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one part of the decision says: the verdict, its sentence, and facts."""

    verdict: Verdict
    text: str
    facts: tuple[str, ...] = ()


def shown(at: datetime) -> str:
    """`2026-11-30T09:00:00Z`, with milliseconds where there are some."""
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}{f'.{at.microsecond // 1000:03d}' if at.microsecond else ''}Z"


def span(seconds: float) -> str:
    """A length of time in words: `120 ms`, `12.3 s`, `3 hours 10 minutes`."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    return length(whole if whole < 3_600 else whole // 60 * 60)


def times(count: int, noun: str) -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
