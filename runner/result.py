"""Step 5 of 5: target -> run row.

Outcomes are collected for a few milliseconds and written by the batch, where attempt and claim are still ours; a row that is
not was fenced (cancelled, taken by the reaper, or its target has reported the end already) and its outcome is discarded and
counted. If the process dies before the commit the rows stand under a claim of a dead runner: the next attempt repeats the call,
which is why targets get the run's id.
A statement whose reply was lost is sent again: zero rows then mean done or fenced.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.admission import Admission
from bucketd.runner.call import Answer
from bucketd.runner.outage import Cause, Outage, cause
from bucketd.runner.retry import Class, classify
from bucketd.runner.run import ClaimBook, Run, counted
from bucketd.store import results as statement
from bucketd.store.arrays import packed_int2
from bucketd.store.failpoint import reach
from bucketd.store.log import warn
from bucketd.store.results import Failed, Keys
from bucketd.store.retry import Own, Policy, error_text
from bucketd.store.runners import CallTarget

BATCH = 2_000
ACCEPTED = 202  # to a target with complete_within_s: the run goes on there, its end will be reported
LINGER_S = 0.004  # outcomes of this time share a statement and a commit


@dataclass(frozen=True, slots=True)
class ResultReport:
    """One statement. `fenced`: outcomes that came too late; `dropped`: of an incarnation that has ended; `died`: how many of the failed
    get no other attempt."""

    succeeded: int = 0
    failed: int = 0
    accepted: int = 0
    given_back: int = 0
    deferred: int = 0
    fenced: int = 0
    dropped: int = 0
    died: int = 0


class _Success(NamedTuple):
    runs: list[Run]
    status: int


class _Kind(NamedTuple):
    """Outcomes of a rarer kind. `name`: the field of ResultReport that counts them; `write`: their statement."""

    name: str
    waiting: deque[tuple[Run, Any]]
    write: Callable[[psycopg.AsyncConnection[Any], Keys, Sequence[Any], Sequence[int]], Awaitable[int]]


class Results:
    """Collects outcomes and writes them. Bounded by admission: an outcome is an open run."""

    def __init__(self, pool: AsyncConnectionPool, *, admission: Admission, book: ClaimBook) -> None:
        self._pool = pool
        self._admission = admission
        self._book = book
        self._succeeded: deque[_Success] = deque()
        self._unmade = _Kind("given_back", deque(), statement.give_back)
        self._deferred = _Kind("deferred", deque(), statement.defer)
        self._failed = _Kind("failed", deque(), self._write_failures)
        self._accepted = _Kind("accepted", deque(), statement.write_accepted)
        # In this order: what others may take goes first.
        self._rare = (self._unmade, self._deferred, self._failed, self._accepted)
        self._waiting = 0
        self._sending = 0  # statements on their way
        self._died = 0  # since the last report
        self.some = asyncio.Event()
        self.full = asyncio.Event()
        self.empty = asyncio.Event()
        self.empty.set()
        self._outage = Outage("result")

    def done(self, runs: list[Run], target: CallTarget, answer: Answer) -> None:
        """The answer to the request that carried these runs."""
        reach("after_response")
        if answer.status == ACCEPTED and target.complete_within_s is not None:
            self._accepted.waiting.extend((run, target.complete_within_s) for run in runs)
        elif answer.status is not None and classify(answer.status) is Class.SUCCESS:
            self._succeeded.append(_Success(runs, answer.status))
        else:
            self._failed.waiting.extend((run, (run.attempt, target, answer)) for run in runs)
        self._added(len(runs))

    def give_back(self, runs: Sequence[Run]) -> None:
        """These runs were never called: anybody may take them."""
        self._unmade.waiting.extend((run, None) for run in runs)
        self._added(len(runs))

    def defer(self, runs: Sequence[Run], reason: str) -> None:
        """These runs were never called: there is no place for them, `reason` (store/results.py) says where."""
        self._deferred.waiting.extend((run, reason) for run in runs)
        self._added(len(runs))

    def _added(self, runs: int) -> None:
        self._waiting += runs
        if self._waiting:
            self.some.set()
            self.empty.clear()
        if self._waiting >= BATCH:
            self.full.set()

    async def wait(self) -> None:
        """Until there is a batch, or something has waited LINGER_S."""
        await self.some.wait()
        if not self.full.is_set():
            try:
                async with asyncio.timeout(LINGER_S):
                    await self.full.wait()
            except TimeoutError:
                pass

    async def run_once(self) -> ResultReport:
        """Writes one batch of one kind: the rare kinds first. Waits while Postgres is away."""
        kind = next((kind for kind in self._rare if kind.waiting), None)
        return await (self._write_succeeded() if kind is None else self._write_rare(kind))

    async def _write_succeeded(self) -> ResultReport:
        runs: list[Run] = []
        statuses: list[bytes] = []
        while self._succeeded and len(runs) < BATCH:
            group = self._succeeded.popleft()
            runs += group.runs
            statuses += [packed_int2(group.status)] * len(group.runs)
        self._took(len(runs))
        living, dropped = _living(runs)
        if dropped:
            statuses = [status for run, status in zip(runs, statuses, strict=True) if not run.claim.incarnation.ended]

        async def write(connection: psycopg.AsyncConnection[object], spent: Sequence[int]) -> int:
            return await statement.write_succeeded(connection, _keys(living), statuses, spent)

        fenced = await self._write(living, len(runs), write)
        return ResultReport(succeeded=len(living) - fenced, fenced=fenced, dropped=dropped)

    async def _write_rare(self, kind: _Kind) -> ResultReport:
        pairs = [kind.waiting.popleft() for _ in range(min(BATCH, len(kind.waiting)))]
        self._took(len(pairs))
        kept = [(run, outcome) for run, outcome in pairs if not run.claim.incarnation.ended]
        living = [run for run, _ in kept]

        async def write(connection: psycopg.AsyncConnection[object], spent: Sequence[int]) -> int:
            return await kind.write(connection, _keys(living), [outcome for _, outcome in kept], spent)

        fenced = await self._write(living, len(pairs), write)
        counts = {kind.name: len(living) - fenced, "died": self._died}
        self._died = 0
        return ResultReport(fenced=fenced, dropped=len(pairs) - len(living), **counts)

    def _took(self, runs: int) -> None:
        self._waiting -= runs
        if not self._waiting:
            self.some.clear()
        if self._waiting < BATCH:
            self.full.clear()

    async def _write(
        self, runs: list[Run], taken: int, write: Callable[[psycopg.AsyncConnection[object], Sequence[int]], object]
    ) -> int:
        """Sends the statement until it is answered; how many rows were fenced (unknown after a lost reply: 0)."""
        self._sending += 1
        try:
            return await self._send(runs, write) if runs or self._book.has_left_over else 0
        finally:
            self._sending -= 1
            self._admission.ended(taken)
            if self._book.has_left_over and not self._waiting:
                self.some.set()  # one more statement, of claims alone
            elif not self._waiting and not self._sending:
                self.empty.set()

    async def _send(self, runs: list[Run], write: Callable[..., object]) -> int:
        counts = counted(runs)
        spent = self._book.spent_by(counts)
        again = False
        while not (runs and runs[0].claim.incarnation.ended):
            try:
                async with self._pool.connection() as connection:
                    rows = await write(connection, spent)  # type: ignore[misc]
                reach("after_result")
                self._book.written(counts, spent)
                self._outage.recovered()
                return 0 if again else len(runs) - int(rows)
            except psycopg.Error as error:
                if cause(error) is Cause.ROW:
                    warn("results_refused", runs=len(runs), sqlstate=error.sqlstate, error=str(error)[:200])
                    break
                again = True
                await asyncio.sleep(self._outage.failed(error))
        self._book.unwritten(counts, spent)
        for claim in counts:
            self._book.forget(claim)
        return len(runs)

    async def _write_failures(
        self,
        connection: psycopg.AsyncConnection[Any],
        keys: Keys,
        failures: Sequence[tuple[int, CallTarget, Answer]],
        spent: Sequence[int],
    ) -> int:
        own = await statement.own_retries(connection, keys.ids)
        decided = [
            failure(attempt, target, answer, random.random(), own.get(schedule_id))
            for schedule_id, (attempt, target, answer) in zip(keys.ids, failures, strict=True)
        ]
        rows = await statement.write_failed(connection, keys, decided, spent)
        self._died += min(rows, sum(one.delay_s is None for one in decided))
        return rows


def _living(runs: list[Run]) -> tuple[list[Run], int]:
    """Runs of an incarnation that lives, and how many others there were."""
    living = [run for run in runs if not run.claim.incarnation.ended]
    return living, len(runs) - len(living)


def _keys(runs: Sequence[Run]) -> Keys:
    return Keys(
        [run.schedule_id for run in runs],
        [run.at for run in runs],
        [packed_int2(run.attempt) for run in runs],
        [run.claim.packed for run in runs],
    )


def failure(attempt: int, target: CallTarget, answer: Answer, draw: float, own: Own | None = None) -> Failed:
    """What a failed attempt means for its run. `draw` in [0, 1); `own`: what its schedule says of retries."""
    text = error_text(answer.error)
    if not answer.buildable or (answer.status is not None and classify(answer.status) is Class.REJECTED):
        return Failed(answer.status, text, None, "rejected")
    policy = Policy(target.max_attempts, target.retry_base_s, target.retry_cap_s).with_own(own)
    wait_s = policy.next_s(attempt, draw, answer.retry_after_s)
    return Failed(answer.status, text, wait_s, "attempts" if wait_s is None else None)
