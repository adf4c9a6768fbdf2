"""What a runner holds between confirm and result: runs, and the claims that prove it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from bucketd.store.arrays import packed_int8
from bucketd.store.claims import new_claim
from bucketd.store.clock import monotonic


class Incarnation:
    """One life of this runner in Postgres. When it has ended, nothing it claimed may be called or written."""

    __slots__ = ("believed_until", "ended", "runner_id")

    def __init__(self, runner_id: UUID) -> None:
        self.runner_id = runner_id
        self.believed_until = 0.0  # clock.monotonic() seconds
        self.ended = False


class Claim:
    """One batch of runs. `open`: how many of them have no written result yet. `asked_at`: when the statement that made it was last sent,
    by `monotonic()`. `woken`: its runs were rows before."""

    __slots__ = ("asked_at", "incarnation", "number", "open", "packed", "woken")

    def __init__(self, incarnation: Incarnation, *, woken: bool = False) -> None:
        self.woken = woken
        self.asked_at = monotonic()
        self.number = new_claim()
        self.packed = packed_int8(self.number)
        self.incarnation = incarnation
        self.open = 0


class Run(NamedTuple):
    """One attempt that this runner has to make. A tuple: there are 50,000 of them a second."""

    schedule_id: bytes
    at: bytes  # scheduled_at, an element of arrays.Instants
    attempt: int
    claim: Claim
    tenant: str
    target_id: int
    timeout_s: int | None  # the schedule's own
    run_id: str
    body: str  # JSON object
    background: bool = False  # catch-up and backfill: live work goes first
    due_at: float | None = None  # by `monotonic()`, of a first attempt at something that was due; see lateness.py


class ClaimBook:
    """Claims that this process knows: being asked for, or with runs whose results are not written.

    Bounded by what admission lets in. A claim in Postgres that is not in the book was lost on the way and is swept.
    """

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        self._left_over: list[int] = []

    def __len__(self) -> int:
        return len(self._claims)

    def numbers(self) -> list[int]:
        return list(self._claims)

    def new(self, incarnation: Incarnation, *, woken: bool = False) -> Claim:
        """A claim that is in the book before its statement is sent."""
        claim = Claim(incarnation, woken=woken)
        self._claims[claim.number] = claim
        return claim

    def opened(self, claim: Claim, runs: int) -> None:
        """The claim's statement is resolved and took `runs` runs."""
        claim.open = runs
        if not runs:
            self.forget(claim)

    def forget(self, claim: Claim) -> None:
        """Out of the book; what Postgres may still hold under it is the sweep's."""
        self._claims.pop(claim.number, None)

    @property
    def has_left_over(self) -> bool:
        """Whether claims wait for somebody who deletes them."""
        return bool(self._left_over)

    def spent_by(self, counts: Counter[Claim]) -> list[int]:
        """Claims to delete with the results of these runs: nobody else's results are missing under them.

        Two writers that hold the last parts of a claim at once both leave it; it is given to the next writer.
        """
        left_over, self._left_over = self._left_over, []
        return left_over + [claim.number for claim, runs in counts.items() if claim.open == runs]  # guard: spent-claims

    def written(self, counts: Counter[Claim], spent: Iterable[int]) -> None:
        """The results of these runs are committed, and the `spent` claims deleted."""
        gone = set(spent)
        for claim, runs in counts.items():
            claim.open -= runs
            if claim.open <= 0:
                self.forget(claim)
                if claim.number not in gone:
                    self._left_over.append(claim.number)

    def unwritten(self, counts: Counter[Claim], spent: Iterable[int]) -> None:
        """The statement that was to delete `spent` never will."""
        own = {claim.number for claim in counts}
        self._left_over += [number for number in spent if number not in own]

    def drop(self, incarnation: Incarnation) -> int:
        """Forgets everything of an incarnation that has ended; how many claims."""
        lost = [claim for claim in self._claims.values() if claim.incarnation is incarnation]
        for claim in lost:
            self.forget(claim)
        self._left_over.clear()  # their rows are the reaper's now
        return len(lost)


def counted(runs: Sequence[Run]) -> Counter[Claim]:
    """How many of the runs stand under each claim."""
    return Counter([run.claim for run in runs])
