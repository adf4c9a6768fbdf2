"""Step 3 of 5: queue -> run row.

A batch of fires becomes rows in one autocommit statement that also says what to call. Invariants: at most one row per run key
whatever is repeated (I1), nothing early (I4), a message is acknowledged only when each of its fires is committed or refused for
a counted reason (I6). If the process dies before the commit the message is redelivered; after it, the rows stand under a claim
of a dead runner and the reaper frees them. If the reply of the commit is lost, the same claim and keys are sent again: the
statement waits for the one in doubt, and rows that carry our claim are ours.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.admission import Admission
from bucketd.runner.backlog import Acknowledger, Backlog, Message
from bucketd.runner.bodies import body, moment_of_tail
from bucketd.runner.cancel import Cancellations
from bucketd.runner.heartbeat import Heartbeat
from bucketd.runner.outage import Cause, Outage, cause
from bucketd.runner.run import Claim, ClaimBook, Run
from bucketd.store import confirm as statement
from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.confirm import Busy, FireBytes, Verdict
from bucketd.store.failpoint import reach
from bucketd.store.log import warn
from bucketd.store.model import instant, run_id

EARLY_LOOK_S = 2.0  # an early fire is asked about again after at most this
EARLY_LIMIT_S = 60.0  # a fire that is earlier than that is left to settling: it was drained by a broken clock
TRIES = 5  # of a single fire whose row cannot be made
TRY_PAUSE_S = 0.2
AGAIN_S = 0.02  # a fire that stands behind another of its schedule


@dataclass(frozen=True, slots=True)
class ConfirmReport:
    """One batch. `refused` by reason; kept fires are asked about again."""

    fires: int = 0
    confirmed: int = 0
    kept: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class _RowError(Exception):
    """Some row of the batch cannot be made."""


class Confirmer:
    """Turns the backlog into runs. Several may work on the same backlog."""

    def __init__(
        self,
        settings: Settings,
        pool: AsyncConnectionPool,
        *,
        backlog: Backlog,
        acknowledger: Acknowledger,
        admission: Admission,
        heartbeat: Heartbeat,
        book: ClaimBook,
        cancellations: Cancellations,
        busy: Callable[[], Busy],
        dispatch: Callable[[dict[int, list[Run]], dict[int, int]], Any],
    ) -> None:
        self._pool = pool
        self._batch = settings.confirm_batch
        self._dead_after_s = settings.runner_dead_after_s
        self._backlog = backlog
        self._acknowledger = acknowledger
        self._admission = admission
        self._heartbeat = heartbeat
        self._book = book
        self._cancellations = cancellations
        self._busy = busy
        self._dispatch = dispatch
        self._failures: Counter[FireBytes] = Counter()  # bounded: only fires in the backlog, removed when decided
        self._outage = Outage("confirm")

    async def run_once(self) -> ConfirmReport:
        """Decides one batch of what is in the backlog, as far as there is room. Waits while Postgres is away."""
        fires, owners, crowd = self._backlog.take(self._admission.room(self._batch))
        try:
            if not fires:
                return ConfirmReport()
            if self._heartbeat.current.ended:
                self._backlog.keep_for(fires, owners, TRY_PAUSE_S)
                return ConfirmReport(len(fires), kept=len(fires))
            return await self._decide(fires, owners)
        finally:
            if crowd:
                self._backlog.crowd_decided()

    async def _decide(self, fires: list[FireBytes], owners: list[Message]) -> ConfirmReport:
        claim = self._book.new(self._heartbeat.current)
        self._admission.reserve(len(fires))
        runs = size = 0
        try:
            reach("before_confirm")
            lines, mine = await self._ask(fires, claim)  # guard: ack-after-commit
            reach("after_commit")
            if overtaken := next((line[-1] for line in lines if line[-1]), None):
                self._cancellations.announce(_run_ids(overtaken))
            report, by_target, revisions, size = self._sort(fires, owners, claim, lines, mine)
            runs = report.confirmed
        except _RowError as error:
            self._book.forget(claim)
            return await self._split(fires, owners, error)
        except BaseException:
            self._book.forget(claim)
            raise
        finally:
            self._admission.claimed(len(fires), runs, size)
        self._book.opened(claim, runs)
        if by_target:
            await self._dispatch(by_target, revisions)
        return report

    async def _ask(self, fires: list[FireBytes], claim: Claim) -> tuple[list[tuple[Any, ...]], set[int]]:
        """The answer to the statement, whatever it takes; `mine` = places whose rows an earlier try made."""
        arrays = statement.columns(fires)
        again = False
        runner_id = claim.incarnation.runner_id
        while True:
            try:
                async with self._pool.connection() as connection:
                    claim.asked_at = monotonic()
                    lines = await statement.confirm(
                        connection,
                        runner_id,
                        claim.number,
                        arrays,
                        dead_after_s=self._dead_after_s,
                        again=again,
                        busy=self._busy(),
                    )
                    mine = await statement.mine(connection, claim.number, arrays) if again else set()
                if self._outage.recovered():
                    self._heartbeat.suspect()  # it may be another Postgres, that lost something
                return lines, mine
            except psycopg.Error as error:
                if cause(error) is Cause.ROW:
                    raise _RowError(f"{error.sqlstate} {error}") from error
                again = True
                await asyncio.sleep(self._outage.failed(error))

    def _sort(
        self, fires: list[FireBytes], owners: list[Message], claim: Claim, lines: list[tuple[Any, ...]], mine: set[int]
    ) -> tuple[ConfirmReport, dict[int, list[Run]], dict[int, int], int]:
        """Runs by target, from the answer; acknowledges what is decided. The loop runs 50,000 times a second: plain tuples."""
        by_target: dict[int, list[Run]] = {}
        revisions: dict[int, int] = {}
        odd: list[tuple[int, int, float | None]] = []
        confirmed = size = 0
        asked_at = claim.asked_at
        for n, verdict, is_new, payload, tenant, name, target_id, timeout_s, wait_s, found, _ in lines:
            if found is not None:
                revisions = _revisions(found)
            if is_new or n in mine:  # guard: lost-reply
                schedule_id, _, tail = fires[n - 1]
                at, prefix, instants = moment_of_tail(tail)
                run_id = prefix + schedule_id.hex()
                text = body(run_id, name, tenant, instants, 1, payload)
                due_at = None if wait_s is None else asked_at + wait_s
                run = Run(schedule_id, at, 1, claim, tenant, target_id, timeout_s, run_id, text, False, due_at)
                size += len(text)
                confirmed += 1
                if target_id in by_target:
                    by_target[target_id].append(run)
                else:
                    by_target[target_id] = [run]
            else:
                odd.append((n, verdict, wait_s))
        if confirmed == len(fires):
            self._acknowledger.decided(owners)
            return ConfirmReport(confirmed, confirmed), by_target, revisions, size
        kept, refused = self._refuse(fires, owners, lines, odd)
        report = ConfirmReport(len(fires), confirmed, kept, refused)
        return report, by_target, revisions, size

    def _refuse(
        self,
        fires: list[FireBytes],
        owners: list[Message],
        lines: list[tuple[Any, ...]],
        odd: list[tuple[int, int, float | None]],
    ) -> tuple[int, Counter[str]]:
        """Keeps what is not decided, counts and acknowledges the rest."""
        refused: Counter[str] = Counter()
        kept: dict[int, float] = {}
        for n, verdict, wait_s in odd:
            if verdict == Verdict.RUNNER_DEAD:
                kept[n] = TRY_PAUSE_S
            elif verdict == Verdict.AGAIN:
                kept[n] = AGAIN_S
            elif verdict == Verdict.EARLY and wait_s is not None and wait_s <= EARLY_LIMIT_S:
                kept[n] = min(wait_s, EARLY_LOOK_S)
            else:
                refused["duplicate" if verdict == Verdict.RUN else Verdict(verdict).name.lower()] += 1
        missing = len(fires) - len(lines)
        if missing:
            refused["missing"] += missing
        if any(verdict == Verdict.RUNNER_DEAD for _, verdict, _ in odd):
            self._heartbeat.suspect()
        if kept:
            places = list(kept)
            self._backlog.keep_for([fires[n - 1] for n in places], [owners[n - 1] for n in places], max(kept.values()))
        self._acknowledger.decided(owner for n, owner in enumerate(owners, 1) if n not in kept)
        for fire in fires if self._failures else ():
            self._failures.pop(fire, None)
        return len(kept), refused

    async def _split(self, fires: list[FireBytes], owners: list[Message], error: _RowError) -> ConfirmReport:
        """Halves a batch that has a bad row, down to the row, so that the good ones are not kept back."""
        if len(fires) > 1:
            middle = len(fires) // 2
            first = await self._decide(fires[:middle], owners[:middle])
            second = await self._decide(fires[middle:], owners[middle:])
            return ConfirmReport(
                len(fires),
                first.confirmed + second.confirmed,
                first.kept + second.kept,
                first.refused + second.refused,
            )
        self._failures[fires[0]] += 1
        if self._failures[fires[0]] < TRIES:
            self._backlog.keep_for(fires, owners, TRY_PAUSE_S * self._failures[fires[0]])
            return ConfirmReport(1, kept=1)
        del self._failures[fires[0]]
        warn("fire_failed", schedule=fires[0][0].hex(), tries=TRIES, error=str(error)[:200])
        self._acknowledger.decided(owners)
        return ConfirmReport(1, refused=Counter(failed=1))


def _run_ids(text: str) -> list[str]:
    pairs = (pair.split("@") for pair in text.split(","))
    return [run_id(UUID(schedule_id), instant(int(at_us))) for schedule_id, at_us in pairs]


def _revisions(text: str) -> dict[int, int]:
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(target_id): int(revision) for target_id, revision in pairs}
