"""What has to become of a schedule that is edited, paused, resumed and deleted: a second opinion, without engine and SQL.

Two facts about each instant decide: which timing held at it, and whether the schedule was there, not paused and above its
floor when it fell due. What cannot be known is as small as the design has it. An instant between the start of a write and
its acknowledgement may follow either side of the write; and a pause or a delete drops what was due and not decided.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from tests.support.walk import walk_cron, walk_every

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """From the start of a write to its acknowledgement, in seconds of the cluster's clock."""

    begin_s: float
    end_s: float


NEVER = Span(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Timing:
    """An interval (`every_s`, counted from `phase_s`), a cron in UTC, or, with neither, the one instant `phase_s`."""

    every_s: int | None = None
    cron: str | None = None
    phase_s: int = 0
    jitter_s: int = 0

    def offset_s(self, id: UUID) -> int:
        """From the instant to when it is due: drawn from the id, at most `jitter_s`, below the period."""
        drawn = int(hashlib.md5(str(id).encode()).hexdigest()[:8], 16) % (self.jitter_s + 1)
        return drawn % self.every_s if self.every_s else drawn

    @property
    def rule(self) -> str:
        """For people."""
        rule = f"every {self.every_s} s from {self.phase_s}" if self.every_s else self.cron or f"at {self.phase_s}"
        return f"{rule} + {self.jitter_s}" if self.jitter_s else rule

    def instants(self, start_s: int, end_s: int) -> tuple[int, ...]:
        """Instants in [start_s, end_s), ascending."""
        if self.every_s is None and self.cron is None:
            return (self.phase_s,) if start_s <= self.phase_s < end_s else ()
        hour = start_s // 3600 * 3600  # the same walk serves all that share a rule
        walked = _walk(self.every_s, self.cron, self.phase_s, hour, hour + 7200)
        return walked[bisect_left(walked, start_s) : bisect_left(walked, end_s)]


@lru_cache(maxsize=20_000)
def _walk(every_s: int | None, cron: str | None, phase_s: int, start_s: int, end_s: int) -> tuple[int, ...]:
    start, end = _EPOCH + timedelta(seconds=start_s), _EPOCH + timedelta(seconds=end_s)
    found = walk_every(every_s, phase_s, start, end) if every_s else walk_cron(cron or "", "UTC", start, end)
    return tuple(int(instant.timestamp()) for instant in found)


class Fate(NamedTuple):
    """What an occurrence gets: `sure` = a row, or a place in a later row's count; else that or nothing."""

    sure: bool
    offset_s: int | None  # None: either of two


class History:
    """One schedule from its creation on; times only grow."""

    def __init__(self, id: UUID, timing: Timing, created: Span) -> None:
        self.id = id
        self.created, self.deleted = created, NEVER
        self.timings: list[tuple[Span, Timing]] = [(created, timing)]
        self.pauses: list[tuple[Span, Span]] = []

    @property
    def timing(self) -> Timing:
        """The newest one."""
        return self.timings[-1][1]

    @property
    def paused(self) -> bool:
        """Whether the last pause has no end yet."""
        return bool(self.pauses) and self.pauses[-1][1] is NEVER

    @property
    def retimed(self) -> int:
        """How often an edit moved the timing."""
        return len(self.timings) - 1

    def retime(self, timing: Timing, when: Span) -> None:
        """The new timing holds from now; a put of the same one is no edit."""
        if timing != self.timing:
            self.timings.append((when, timing))

    def pause(self, when: Span) -> None:
        """No effect where it is paused."""
        if not self.paused:
            self.pauses.append((when, NEVER))

    def resume(self, when: Span) -> None:
        """What lay in the pause stays there."""
        if self.paused:
            self.pauses[-1] = (self.pauses[-1][0], when)

    def delete(self, when: Span) -> None:
        """Nothing comes after it."""
        self.deleted = when

    def shown(self, from_s: float = 0) -> str:
        """For people: each write with its time, in seconds after `from_s`."""
        writes = [(when, f"timing {timing.rule}") for when, timing in self.timings]
        writes += [(when, what) for pair in self.pauses for when, what in zip(pair, ("pause", "resume"), strict=True)]
        writes += [(self.deleted, "delete")]
        return ", ".join(
            f"{what} at {when.begin_s - from_s:g}" + (f"..{when.end_s - from_s:g}" if when.end_s > when.begin_s else "")
            for when, what in sorted(writes)
            if when is not NEVER
        )

    def fates(self, end_s: int, decided: Callable[[int, Span], float]) -> dict[int, Fate]:
        """By instant, for all that are due before `end_s`; one that is missing here must have no row. `decided`: by when (infinity:
        not by the end) the cluster came to what was due at a second, by a timing that stood there to be planned for a span."""
        found: dict[int, list[Fate]] = {}
        holds = [*(begin for begin, _ in self.timings[1:]), NEVER]
        for (begin, timing), until in zip(self.timings, holds, strict=True):
            offset_s = timing.offset_s(self.id)
            last_s = min(math.floor(min(until.end_s, self.deleted.end_s, end_s)), end_s - 1 - offset_s)
            for at in timing.instants(math.ceil(begin.begin_s), last_s + 1):
                due_s = at + offset_s
                stood = Span(self._resumed_s(begin.end_s, due_s), until.begin_s)
                sure = self._sure(at, due_s, decided(due_s, stood))
                if sure is not None:
                    found.setdefault(at, []).append(Fate(sure, offset_s))
        return {at: self._merged(at, fates) for at, fates in found.items()}

    def _merged(self, at: int, fates: list[Fate]) -> Fate:
        """One for all timings that may have held: sure only if each of them says so."""
        offsets_s = {fate.offset_s for fate in fates}
        sure = len(fates) == sum(1 for _ in self._held(at)) and all(fate.sure for fate in fates)
        return Fate(sure, offsets_s.pop() if len(offsets_s) == 1 else None)

    def _resumed_s(self, begin_s: float, due_s: int) -> float:
        """From when on, before it was due, a schedule was planned by a timing that holds since `begin_s`."""
        return max([begin_s, *(resume.end_s for _, resume in self.pauses if resume.begin_s <= due_s)])

    def _held(self, at: int) -> Iterator[Timing]:
        """Timings that may have held at an instant: more than one while an edit is under way."""
        holds = [*(begin for begin, _ in self.timings[1:]), NEVER]
        for (begin, timing), until in zip(self.timings, holds, strict=True):
            if begin.begin_s <= at <= until.end_s:
                yield timing

    def _sure(self, at: int, due_s: int, decided_s: float) -> bool | None:
        """Whether the occurrence must come, for a timing that held at it; None: it must not."""
        if due_s > self.deleted.end_s:
            return None
        sure = at > self.created.end_s and math.isfinite(decided_s) and decided_s < self.deleted.begin_s
        for pause, resume in self.pauses:
            if due_s > pause.end_s and at < resume.begin_s:
                return None  # paused when it fell due, or below the floor that the resume has raised
            before, after = due_s < pause.begin_s and decided_s < pause.begin_s, at > resume.end_s
            sure = sure and (before or after)
        return sure
