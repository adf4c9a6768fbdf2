"""Tells targets' hooks which runs died.

The dead letter is the outbox. A look takes what is due for LEASE_S and counts the try; each answer is written by itself. If the process
dies in between, the lease runs out and the next look of any runner tells it again, under the same webhook-id: at least once. A hook that
fails is nobody's failure but its own: TRIES tries over about half an hour, then it is given up, and the letter says so.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NoReturn

import psycopg
from psycopg_pool import AsyncConnectionPool

from bucketd.runner.call import Answer, Caller
from bucketd.runner.outage import Outage
from bucketd.runner.request import headers_of
from bucketd.runner.targets import Targets
from bucketd.store import hooks
from bucketd.store.hooks import Death, Due
from bucketd.store.log import event, warn
from bucketd.store.runners import CallTarget

PLACES = 50  # calls of hooks in flight
PLACES_OF_TARGET = 8
TRIES = 8
TIMEOUT_S = 10.0
LEASE_S = 60.0  # longer than a call, and the wait for a connection to write what came of it
BASE_S, CAP_S = 30.0, 3600.0


@dataclass(frozen=True, slots=True)
class HookReport:
    """What came of hooks since the last look."""

    hooks_told: int = 0
    hooks_failed: int = 0
    hooks_given_up: int = 0


class Hooks:
    """The hooks of all targets. While one fails, it is asked about one letter at a time: an outage uses up the tries of few."""

    def __init__(self, pool: AsyncConnectionPool, caller: Caller, targets: Targets, poll_s: float) -> None:
        self._pool = pool
        self._caller = caller
        self._targets = targets
        self._poll_s = poll_s
        self._in_flight: Counter[int] = Counter()  # by target
        self._failing: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._after = 0  # the target behind which the next look begins
        self._more = asyncio.Event()
        self._outage = Outage("hooks")

    async def run(self, count: Callable[[HookReport], None]) -> NoReturn:
        """Until cancelled; what is on its way then is told again by another runner."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    count(await self.run_once(group))
                    self._outage.recovered()
                    await self._pause()
                except psycopg.Error as error:
                    await asyncio.sleep(self._outage.failed(error))

    async def run_once(self, group: asyncio.TaskGroup) -> HookReport:
        """Takes what is due and has a place; the group has the calls. Raises psycopg.Error."""
        self._more.clear()
        free = PLACES - self._in_flight.total()
        if free > 0:
            for death, target in await self._take(free):
                self._in_flight[death.target_id] += 1
                group.create_task(self._tell(death, target))
        report, self._counts = HookReport(**self._counts), Counter()
        return report

    async def _take(self, free: int) -> list[tuple[Death, CallTarget]]:
        async with self._pool.connection() as connection:
            found = await hooks.due(connection, self._after, PLACES)
            self._after = found[-1].target_id if len(found) == PLACES else 0
            if gone := [one.target_id for one in found if one.url is None]:
                await hooks.drop(connection, gone)
        revisions = {one.target_id: one.revision for one in found if one.url and one.revision is not None}
        if not revisions:
            return []
        await self._targets.need(revisions)
        told = {one.target_id: target for one in found if (target := self._hook(one))}
        async with self._pool.connection() as connection:
            deaths = await hooks.take(connection, self._places(list(told), free), lease_s=LEASE_S)
        return [(death, told[death.target_id]) for death in deaths]

    def _hook(self, due: Due) -> CallTarget | None:
        """The target with its hook as its address. Its own headers are not for another address: they may be its passwords."""
        known = self._targets.get(due.target_id)
        return replace(known, url=due.url, headers={}) if known and due.url else None

    def _places(self, target_ids: list[int], free: int) -> dict[int, int]:
        """How many letters of each may be taken; those with the fewest calls on their way come first."""
        found = {}
        for target_id in sorted(target_ids, key=lambda target_id: self._in_flight[target_id]):
            most = 1 if target_id in self._failing else PLACES_OF_TARGET
            found[target_id] = min(free, max(0, most - self._in_flight[target_id]))
            free -= found[target_id]
        return found

    async def _tell(self, death: Death, target: CallTarget) -> None:
        try:
            content = message(death, target.name)
            headers = headers_of(target, f"dead_{death.letter_id}", content, self._caller.now_s())
            answer = await self._caller.post(target, content, headers, TIMEOUT_S)
            await self._note(death, target, answer)
            self._outage.recovered()
        except psycopg.Error as error:
            self._outage.failed(error)  # its lease runs out, and it is told again
        finally:
            self._in_flight -= Counter({death.target_id: 1})

    async def _note(self, death: Death, target: CallTarget, answer: Answer) -> None:
        well = answer.status is not None and 200 <= answer.status < 300
        self._follow(target, well, answer)
        gives_up = not well and (death.tries >= TRIES or not answer.buildable)
        self._counts["hooks_told" if well else "hooks_given_up" if gives_up else "hooks_failed"] += 1
        async with self._pool.connection() as connection:
            if well:
                await hooks.told(connection, death)
            else:
                await hooks.failed(connection, death, None if gives_up else delay_s(death.tries, random.random()))
        if gives_up:
            warn(
                "dead_hook_given_up", target=target.name, letter=death.letter_id, tries=death.tries, error=answer.error
            )

    def _follow(self, target: CallTarget, well: bool, answer: Answer) -> None:
        """Says when a hook begins to fail and when it is back; one that answers is asked for more at once."""
        if well:
            self._more.set()
            if target.target_id in self._failing:
                self._failing.discard(target.target_id)
                event("dead_hook_recovered", target=target.name)
        elif target.target_id not in self._failing:
            self._failing.add(target.target_id)
            warn("dead_hook_failing", target=target.name, error=answer.error)

    async def _pause(self) -> None:
        """Until the next look: runners do not look in step, and places that are free again do not wait for it."""
        try:
            async with asyncio.timeout(self._poll_s * random.uniform(0.7, 1.0)):
                await self._more.wait()
        except TimeoutError:
            pass


def delay_s(tries: int, draw: float) -> float:
    """Seconds until the next try: full jitter, by a draw from [0, 1)."""
    return draw * min(CAP_S, BASE_S * 2.0 ** min(tries - 1, 20))


def message(death: Death, target: str) -> bytes:
    """What a hook is told, in the form of Standard Webhooks."""
    data = {
        "run_id": death.run_id, "schedule": death.name, "tenant": death.tenant, "target": target,
        "scheduled_at": _iso(death.scheduled_at), "reason": death.reason, "attempts": death.attempts, "last_error": death.last_error,
        "died_at": _iso(death.died_at), "dead_letter_id": death.letter_id,
    }  # fmt: skip
    return json.dumps({"type": "run.dead", "timestamp": _iso(death.died_at), "data": data}).encode()


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
