"""What has to become of the slots that nobody started: the policies of the time rules, written down a second time.

Plain arithmetic over the lists of walk.py; shares no code with the engine, the settler or the policies in bucketd.timing. It is not
told which part was away, so the answer is one for all of them. Instants are epoch seconds; ages count from due.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from tests.support.walk import walk_cron, walk_every

WINDOW_S = 86_400
CAP = 1_000


@dataclass(frozen=True)
class Rule:
    """An interval with its phase, a cron expression, or (neither) the one instant `at_s`."""

    every_s: int = 0
    phase: int = 0
    cron: str = ""
    tz: str = "UTC"
    at_s: int = 0

    @lru_cache(maxsize=512)  # noqa: B019 - rules are values, and many schedules share one
    def slots(self, from_s: float, until_s: float) -> list[int]:
        """Instants in [from, until), ascending."""
        if not self.every_s and not self.cron:
            return [self.at_s] if from_s <= self.at_s < until_s else []
        start, end = datetime.fromtimestamp(from_s // 60 * 60, UTC), datetime.fromtimestamp(until_s, UTC)
        found = (
            walk_cron(self.cron, self.tz, start, end) if self.cron else walk_every(self.every_s, self.phase, start, end)
        )
        return [int(instant.timestamp()) for instant in found if instant.timestamp() >= from_s]


@dataclass(frozen=True)
class Stretch:
    """The rule of a schedule between two edits, with the jitter of that time: it makes the instants in [from, until)."""

    rule: Rule
    jitter_s: int
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Policy:
    """The columns of a schedule that say what becomes of late slots."""

    misfire: str
    threshold_s: int = 60
    deadline_s: int | None = None


class Outcome(NamedTuple):
    """A row: `reason` is None for a slot that ran as if nothing had been, `missed` counts slots without a row."""

    at_s: int
    status: str
    reason: str | None
    missed: int


def outcomes(
    stretches: Sequence[Stretch], policy: Policy, *, judged_s: float, through_s: int, oldest_s: float
) -> list[Outcome]:
    """Rows for everything due up to `through_s`, judged at one instant; no row may lie below `oldest_s` (retention)."""
    due = {
        at_s: at_s + stretch.jitter_s
        for stretch in stretches
        for at_s in stretch.rule.slots(stretch.from_s, stretch.until_s)
        if at_s + stretch.jitter_s <= through_s
    }
    limit_s = float("inf") if policy.deadline_s is None else policy.deadline_s
    age_s = {at_s: judged_s - due_s for at_s, due_s in sorted(due.items())}
    on_time = [at_s for at_s, age in age_s.items() if age <= min(policy.threshold_s, limit_s)]
    late = sorted(age_s.keys() - set(on_time))
    rows = [Outcome(at_s, "succeeded", None, 0) for at_s in on_time]
    writable = [at_s for at_s in late if at_s >= oldest_s]
    if writable:
        allowed = [at_s for at_s in writable if age_s[at_s] <= limit_s]
        made_up = _made_up(policy.misfire, allowed, age_s)
        reason = "catch_up" if policy.misfire == "catch_up" else "misfire"
        status = "succeeded"
        if not made_up:
            made_up, status = writable[-1:], "skipped"
            reason = "misfire" if allowed else "past_deadline"
        first, *others = made_up
        rows.append(Outcome(first, status, reason, len(late) - len(made_up)))
        rows += [Outcome(at_s, status, reason, 0) for at_s in others]
    return sorted(rows)


def _made_up(misfire: str, allowed: list[int], age_s: dict[int, float]) -> list[int]:
    """The late slots that still run."""
    if misfire == "run_once":
        return allowed[-1:]
    if misfire == "catch_up":
        return [at_s for at_s in allowed if age_s[at_s] <= WINDOW_S][-CAP:]
    return []
