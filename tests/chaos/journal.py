"""Everything the suite writes through the client library, with the span of each write: what the oracle knows of edits.

A write is sent until it is acknowledged, whatever goes wrong meanwhile: its span begins with the first try and ends with the
acknowledgement, and an instant in between may follow either side. Sent again, a put, a pause, a resume or a delete is the same.
A trigger is not: how many runs it made lies between how often it was acknowledged and how often it was sent.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from bucketd.client import AsyncClient, ScheduleInput
from bucketd.errors import NotFound, StoreUnavailable
from bucketd.store.config import Settings
from tests.chaos.timings import Planned, client_timing
from tests.support.edit_model import History, Span

RETRY_S = 0.25
T = TypeVar("T")
Key = tuple[str, str]  # tenant, name


@dataclass
class Life:
    """A schedule, from its creation to its end or that of the play. `options`: the other columns of its last put."""

    key: Key
    history: History
    options: dict[str, Any]
    triggered: int = 0  # acknowledged
    triggers_sent: int = 0


class Journal:
    """Writes, and notes them. `now`: the cluster's clock."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._now = now
        self._client = AsyncClient(settings=settings)
        self.lives: defaultdict[Key, list[Life]] = defaultdict(list)
        self.writes = 0
        self._free = asyncio.Condition()
        self._under_way = 0
        self._closed = 0

    async def close(self) -> None:
        """Closes the client's connections."""
        await self._client.close()

    @asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Nothing is written inside: for a fault that loses commits, which would make the journal lie."""
        self._closed += 1
        try:
            async with self._free:
                await self._free.wait_for(lambda: not self._under_way)
            yield
        finally:
            self._closed -= 1
            async with self._free:
                self._free.notify_all()

    def living(self, key: Key) -> Life | None:
        """The schedule that stands under this name now, as far as it was acknowledged."""
        lives = self.lives.get(key)
        return lives[-1] if lives and lives[-1].history.deleted.end_s == float("inf") else None

    def all(self) -> list[Life]:
        """Every schedule that ever was."""
        return [life for lives in self.lives.values() for life in lives]

    async def load(self, planned: Sequence[Planned]) -> None:
        """Puts many new ones at once."""
        inputs = [
            ScheduleInput(name=p.name, tenant=p.tenant, timing=client_timing(p.timing), **p.columns()) for p in planned
        ]
        results, span = await self._write(lambda client: client.schedules.put_many(inputs))
        for one, result in zip(planned, results, strict=True):
            assert result.id is not None, result
            self.lives[one.tenant, one.name].append(
                Life((one.tenant, one.name), History(result.id, one.timing, span), one.options)
            )

    async def put(self, planned: Planned) -> Life:
        """A new schedule, or an edit of the one that stands under the name."""
        key, timing = (planned.tenant, planned.name), client_timing(planned.timing)
        made, span = await self._write(
            lambda client: client.schedules.put(planned.name, timing, tenant=planned.tenant, **planned.columns())
        )
        life = self.living(key)
        if life is None or life.history.id != made.id:
            life = Life(key, History(made.id, planned.timing, span), planned.options)
            self.lives[key].append(life)
        else:
            life.history.retime(planned.timing, span)
            life.options = planned.options
        return life

    async def pause(self, life: Life) -> None:
        """No new run from now on."""
        tenant, name = life.key
        _, span = await self._write(lambda client: client.schedules.pause(name, tenant=tenant))
        life.history.pause(span)

    async def resume(self, life: Life) -> None:
        """From now on again."""
        tenant, name = life.key
        _, span = await self._write(lambda client: client.schedules.resume(name, tenant=tenant))
        life.history.resume(span)

    async def delete(self, life: Life) -> None:
        """Gone, with its unfinished runs."""
        tenant, name = life.key

        async def delete(client: AsyncClient) -> None:
            with suppress(NotFound):  # an earlier try, whose answer did not arrive
                await client.schedules.delete(name, tenant=tenant)

        _, span = await self._write(delete)
        life.history.delete(span)

    async def trigger(self, life: Life) -> None:
        """A run now, beside its occurrences."""
        tenant, name = life.key

        async def trigger(client: AsyncClient) -> None:
            life.triggers_sent += 1
            await client.schedules.trigger(name, tenant=tenant)

        await self._write(trigger)
        life.triggered += 1

    async def targets(self, write: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Another write, which no oracle has to know."""
        return (await self._write(write))[0]

    async def _write(self, write: Callable[[AsyncClient], Awaitable[T]]) -> tuple[T, Span]:
        async with self._free:
            await self._free.wait_for(lambda: not self._closed)
            self._under_way += 1
        begin_s = self._now()
        try:
            while True:
                try:
                    answer = await write(self._client)
                    self.writes += 1
                    return answer, Span(begin_s, self._now())
                except StoreUnavailable:
                    await asyncio.sleep(RETRY_S)
        finally:
            async with self._free:
                self._under_way -= 1
                self._free.notify_all()
