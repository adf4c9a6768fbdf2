"""What becomes of slots that were due and have no row: the choice alone, without clock or database.

A slot is a nominal instant of one schedule; it is due at slot + jitter. Within the threshold it simply runs late.
Beyond, it is a misfire and the schedule's policy decides. Every slot gets a row or is counted in the `missed` of
exactly one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bucketd.timing.errors import TimingError

MISFIRES = ("run_once", "skip", "catch_up")


@dataclass(frozen=True, slots=True)
class MisfirePolicy:
    """`misfire` is run_once, skip or catch_up. Ages count from `due`; what is older than `deadline_s` never runs."""

    misfire: str
    threshold_s: int = 60
    deadline_s: int | None = None
    catch_up_window_s: int = 86_400
    catch_up_cap: int = 1_000

    def __post_init__(self) -> None:
        if self.misfire not in MISFIRES:
            raise TimingError("bad_policy", f"expected misfire to be run_once, skip or catch_up, got {self.misfire!r}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row to write: `status` deferred (to be run) or skipped; `missed` older slots have no row but this count."""

    at_s: int
    status: str
    reason: str | None
    missed: int
    background: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts in ascending order of `at_s`, and the floor that covers every slot without a row (None if each got one).

    No deferred row lies below `floor_s`.
    """

    verdicts: tuple[Verdict, ...]
    floor_s: int | None


def judge(
    slots: Sequence[int], now_s: float, jitter_offset_s: int, policy: MisfirePolicy, unlisted: int = 0
) -> Judgement:
    """Verdicts for `slots`, ascending and distinct; `unlisted` more slots, all of them older, are only counted.

    Raises ValueError for `unlisted` without any slot: there is no row that could carry the count.
    """
    if unlisted and not slots:
        raise ValueError(f"expected at least one listed slot to carry the count of {unlisted} unlisted ones, got none")
    ages_s = [now_s - slot - jitter_offset_s for slot in slots]
    # Ages fall, so each group is a run of `slots`. A deadline below the threshold holds as well: past it nothing runs.
    suppressed = 0 if policy.deadline_s is None else sum(age_s > policy.deadline_s for age_s in ages_s)
    misfired = max(suppressed, sum(age_s > policy.threshold_s for age_s in ages_s))
    rows = _late_rows(slots, ages_s, suppressed, misfired, policy)
    rows += [Verdict(slot, "deferred", None, 0, False) for slot in slots[misfired:]]
    missed = unlisted + len(slots) - len(rows)
    if not missed:
        return Judgement(tuple(rows), None)
    first = rows[0]
    rows[0] = Verdict(first.at_s, first.status, first.reason, missed, first.background)
    return Judgement(tuple(rows), first.at_s)


def _late_rows(
    slots: Sequence[int], ages_s: Sequence[float], suppressed: int, misfired: int, policy: MisfirePolicy
) -> list[Verdict]:
    """Rows of the misfires slots[:misfired], of which slots[:suppressed] are past the deadline; no counts yet.

    All slots without a row are older than the first row, which therefore carries their count and is the floor.
    """
    if not misfired:
        return []
    newest = slots[misfired - 1]
    if suppressed == misfired:
        return [Verdict(newest, "skipped", "past_deadline", 0, False)]
    if policy.misfire == "run_once":
        return [Verdict(newest, "deferred", "misfire", 0, False)]
    if policy.misfire == "catch_up":
        outside = sum(age_s > policy.catch_up_window_s for age_s in ages_s[:misfired])
        first = max(suppressed, outside, misfired - policy.catch_up_cap)
        caught_up = [Verdict(slot, "deferred", "catch_up", 0, True) for slot in slots[first:misfired]]
        if caught_up:
            return caught_up
    return [Verdict(newest, "skipped", "misfire", 0, False)]
