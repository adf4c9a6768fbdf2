"""Circuit breakers: holds of a target that runners put up when it fails, and take down when it answers again.

A breaker is a row in `holds`, so all that holds do is done already: nothing of the target is taken, what falls due is kept, no attempt
is spent, and the misfire policy judges at the end. A user's hold on the same target stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from bucketd.store.audit import act_as
from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements
from bucketd.store.walks import by_index

_SQL = "breakers"
ACTOR = "breaker"  # in the audit log
LISTED = 100  # open breakers that people are shown


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A breaker that is open, why, since when, how often in a row, and when it lets some runs through to see."""

    target: str
    reason: str
    openings: int
    since: datetime
    probe_at: datetime


class Standing(NamedTuple):
    """An open breaker as runners follow it; `due`: some runs may be let through."""

    target_id: int
    openings: int
    due: bool


class HalfOpen(NamedTuple):
    """How many runs were let through, and for how long the breaker has been waiting for one, in seconds."""

    probes: int
    due_s: float


class Closed(NamedTuple):
    """A breaker that has been closed now: of which target (None: it is gone), its openings in a row and how long it was there."""

    target: str | None
    openings: int
    lasted_s: float


def open_(target_id: int, reason: str, *, openings: int, pause_s: float) -> Operation[bool]:
    """Opens the breaker of a target; False if it was open, or the target is gone. In a transaction of the caller's."""
    yield from act_as(ACTOR)
    values = {"target": target_id, "reason": reason, "openings": openings, "pause_s": pause_s}
    return bool((yield Query(statements(_SQL)["open"], values)))


def standing() -> Operation[list[Standing]]:
    """All open breakers."""
    return [Standing(*row) for row in (yield Query(statements(_SQL)["standing"]))]


def list_open() -> Operation[list[OpenBreaker]]:
    """Open breakers, oldest first, at most LISTED."""
    rows = yield Query(statements(_SQL)["list"], {"most": LISTED})
    return [
        OpenBreaker(target, reason, openings, since.astimezone(UTC), probe_at.astimezone(UTC))
        for target, reason, openings, since, probe_at in rows
    ]


def half_open(target_id: int, *, probes: int, pause_s: float) -> Operation[HalfOpen | None]:
    """Lets up to `probes` held runs through if the breaker is due; None: it is not, or somebody else is at it.

    In a transaction of the caller's. If any goes, the next probe is `pause_s` from now, whatever becomes of this one.
    """
    yield from act_as(ACTOR)
    values = {"target": target_id, "probes": probes, "pause_s": pause_s}
    rows = yield from by_index(Query(statements(_SQL)["half_open"], values))
    return HalfOpen(*rows[0]) if rows else None


def reopen(target_id: int, *, openings: int, pause_s: float) -> Operation[str | None]:
    """Counts a failed probe of a breaker that had so many openings; the target's name, None if it was counted already or is closed.

    In a transaction of the caller's.
    """
    yield from act_as(ACTOR)
    values = {"target": target_id, "openings": openings, "pause_s": pause_s}
    rows = yield Query(statements(_SQL)["reopen"], values)
    return rows[0][0] if rows else None


def close(target_id: int) -> Operation[Closed | None]:
    """Closes the breaker of a target; None if there is none. In a transaction of the caller's; its runs are judged afterwards."""
    yield from act_as(ACTOR)
    rows = yield Query(statements(_SQL)["close"], {"target": target_id})
    return Closed(*rows[0]) if rows else None
