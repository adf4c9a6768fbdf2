"""The states of a run, and the text form of a run key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from os import urandom
from uuid import UUID

from bucketd.store.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RunStatus(StrEnum):
    """Where a run stands. The enum run_status and the CHECK runs_states in Postgres say the same."""

    RUNNING = "running"  # claimed by a live runner, or accepted by its target, which is to report the end
    RETRYING = "retrying"  # failed or lost its runner; wakes for the next attempt
    DEFERRED = "deferred"  # has a verdict but no attempt yet: settled late, triggered, backfilled
    WAITING = "waiting"  # waits for another run of its schedule
    HELD = "held"  # kept back by a hold until its release
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # never started, by a rule that `reason` names
    CANCELLED = "cancelled"
    DEAD = "dead"  # out of attempts, or failed in a way that no retry heals


FINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED, RunStatus.CANCELLED, RunStatus.DEAD})

TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: frozenset(
        {RunStatus.SUCCEEDED, RunStatus.RETRYING, RunStatus.DEAD, RunStatus.CANCELLED, RunStatus.HELD}
    ),
    RunStatus.RETRYING: frozenset({RunStatus.RUNNING, RunStatus.HELD, RunStatus.CANCELLED, RunStatus.DEAD}),
    RunStatus.DEFERRED: frozenset(
        {RunStatus.RUNNING, RunStatus.HELD, RunStatus.WAITING, RunStatus.SKIPPED, RunStatus.CANCELLED}
    ),
    RunStatus.WAITING: frozenset({RunStatus.RUNNING, RunStatus.HELD, RunStatus.SKIPPED, RunStatus.CANCELLED}),
    RunStatus.HELD: frozenset({RunStatus.DEFERRED, RunStatus.RETRYING, RunStatus.SKIPPED, RunStatus.CANCELLED}),
    RunStatus.SUCCEEDED: frozenset(),
    RunStatus.SKIPPED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
    RunStatus.DEAD: frozenset({RunStatus.DEFERRED}),  # a replay of the dead letter keeps the key and raises the attempt
}


def check_transition(old: RunStatus, new: RunStatus) -> None:
    """Raises ValueError unless a run may go from `old` to `new`."""
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(TRANSITIONS[old])) or "none: it is final"
        raise ValueError(f"expected one of the next states of {old} ({allowed}), got {new}")


_RUN_ID = re.compile(r"(\d{8}T\d{6})(?:_(\d{6}))?Z-([0-9a-f]{32})", re.ASCII)


def new_ids(count: int) -> Iterator[UUID]:
    """Random schedule ids (UUID version 4), the first byte of each its last; see `bucketd.new_id()` in the migrations for why."""
    random = urandom(16 * count)  # once: a call of the kernel for each would be half the cost of a bulk put's id
    for start in range(0, len(random), 16):
        raw = random[start : start + 16]
        yield UUID(bytes=raw[15:] + raw[1:], version=4)


def run_id(schedule_id: UUID, scheduled_at: datetime) -> str:
    """The run key as text, e.g. `20261130T090000Z-3f0c..`: sortable, safe in a URL and in a header, and reversible."""
    at = scheduled_at.astimezone(UTC)
    fraction = f"_{at.microsecond:06d}" if at.microsecond else ""
    return f"{at:%Y%m%dT%H%M%S}{fraction}Z-{schedule_id.hex}"


def parse_run_id(text: str) -> tuple[UUID, datetime]:
    """(schedule id, scheduled_at) of a run id. Raises InvalidInput."""
    match = _RUN_ID.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        at = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return UUID(hex=match[3]), at + timedelta(microseconds=int(match[2] or 0))
    except ValueError:
        raise InvalidInput(
            f"expected a run id such as 20261130T090000Z-<32 hex digits>, got {text!r}", field="run_id"
        ) from None


def epoch_us(at: datetime) -> int:
    """Microseconds since the epoch of an aware datetime, exactly."""
    return (at - EPOCH) // timedelta(microseconds=1)


def instant(at_us: int) -> datetime:
    """The aware UTC datetime of microseconds since the epoch, exactly."""
    return EPOCH + timedelta(microseconds=at_us)
