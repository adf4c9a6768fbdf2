"""`client.schedules` of `AsyncClient`: the twin of the module schedules; a test keeps the two alike."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

import psycopg

from bucketd.client import put, queries, steps, upcoming
from bucketd.client import why as reasons
from bucketd.client.inputs import Misfire, Overlap, ScheduleInput, check
from bucketd.client.results import Page, PutResult, Schedule
from bucketd.client.session import AsyncSession
from bucketd.client.timings import Timing
from bucketd.errors import InvalidInput
from bucketd.explain.answer import Answer


class AsyncSchedules:
    """Schedules by (tenant, name)."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def put(
        self,
        name: str,
        timing: Timing,
        *,
        target: str,
        payload: Any = None,
        tenant: str = "default",
        labels: Mapping[str, str] | None = None,
        timeout_s: int | None = None,
        max_attempts: int | None = None,
        retry_base_s: float | None = None,
        retry_cap_s: float | None = None,
        overlap: Overlap | None = None,
        misfire: Misfire = "run_once",
        misfire_threshold_s: int = 60,
        deadline_s: int | None = None,
        jitter_s: int = 0,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        paused: bool | None = None,
        catch_up_window_s: int = 86_400,
        catch_up_cap: int = 1_000,
        max_runs: int | None = None,
        exclude: Iterable[date] = (),
        calendars: Iterable[str] = (),
        if_revision: int | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Schedule:
        """Creates the schedule, or makes it as given: what is not passed gets its default. A put that changes nothing writes nothing.

        timing: `cron(..)`, `every(..)` or `at(..)`. payload: JSON, at most 64 KiB. timeout_s: the run's deadline, 1 to 86,400.
        max_attempts, retry_base_s, retry_cap_s: in place of what the target says, each for itself. overlap: what becomes of an
        occurrence while an earlier run goes on: skip (the default), queue_one, queue_all, cancel_running (the earlier one), allow
        (the default of `at(..)`: no other occurrence of it can be going on, and its only one must not be lost).

        misfire: what happens to occurrences that could not start within misfire_threshold_s: run_once (the newest), skip,
        catch_up (those of the last catch_up_window_s, 60 to 604,800, and at most the newest catch_up_cap, up to 10,000; oldest
        first; the rest is counted). deadline_s: later than this they never start. jitter_s: moves each start by a fixed part of
        this, at most 3,600. paused None: a new schedule runs, an old one stays as it is.

        max_runs: ends after so many occurrences, 1 to 100,000, counted from this put (from starts_at, if that is later) and anew
        when timing, starts_at or max_runs change; paused and skipped ones count. exclude: dates without an occurrence, in the zone
        of the timing. calendars: names of the tenant's calendars (`client.calendars`), whose dates are excluded as well; at most 5,000
        dates together.

        if_revision: put only if the schedule is at this revision, 0: only if there is none. connection: your own; the schedule
        then exists if and only if your transaction commits, and the cluster notices within about a second of that.

        Raises InvalidInput (nothing was changed), Conflict (if_revision), StoreUnavailable.
        """
        draft = check(
            ScheduleInput(
                name=name, timing=timing, target=target, payload=payload, tenant=tenant, labels=labels or {}, timeout_s=timeout_s,
                max_attempts=max_attempts, retry_base_s=retry_base_s, retry_cap_s=retry_cap_s, overlap=overlap, misfire=misfire,
                misfire_threshold_s=misfire_threshold_s, deadline_s=deadline_s, jitter_s=jitter_s,
                starts_at=starts_at, ends_at=ends_at, paused=paused, catch_up_window_s=catch_up_window_s,
                catch_up_cap=catch_up_cap, max_runs=max_runs, exclude=exclude, calendars=calendars,
            )
        )  # fmt: skip
        return await self._session.write(lambda: put.put(draft, if_revision), connection, "nudge")

    async def put_many(
        self,
        inputs: Iterable[ScheduleInput | InvalidInput],
        *,
        progress: Callable[[int, int], None] | None = None,
        skip_invalid: bool = False,
        prune: bool = False,
        dry_run: bool = False,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> builtins.list[PutResult]:
        """Puts many schedules, 10,000 a transaction; a result for each in the order given. Safe to repeat.

        All rows are checked before the first is written (so the iterable is read to its end). If any is invalid, nothing is
        written and InvalidBatch is raised with all of them; with skip_invalid the others are put. A row may be an InvalidInput
        in place of a schedule: it is reported where it stands.

        progress(done, total): called after each chunk. prune: deletes the other schedules of the tenants that occur in the batch
        (results with index -1 at the end). dry_run: reports what would happen and rolls it back. connection: everything in your
        transaction.

        Raises InvalidBatch (an InvalidInput), StoreUnavailable: then chunks before the failure are written.
        """
        batch = await asyncio.to_thread(put.Batch, list(inputs))  # a million checks would hold the loop up
        await self._session.write(batch.prepare, connection)
        if not skip_invalid:
            batch.refuse_invalid()
        keys = batch.kept_keys() if prune else None
        done, total = len(batch.invalid), batch.total
        for places in batch.chunks():
            batch.accept(
                await self._session.write(
                    partial(batch.put_chunk, places),
                    connection,
                    "nudge",
                    patient=True,
                    dry_run=dry_run,
                )
            )
            done += len(places)
            if progress:
                progress(done, total)
        if keys is None:
            return batch.results
        surplus = await self._session.write(lambda: put.prune(*keys), connection)
        for start in range(0, len(surplus), put.CHUNK):
            ids = [result.id for result in surplus[start : start + put.CHUNK]]
            await self._session.write(
                partial(put.delete_all, ids),
                connection,
                "nudge",
                patient=True,
                dry_run=dry_run,
            )
        return batch.results + surplus

    async def get(self, name: str, *, tenant: str = "default") -> Schedule:
        """The schedule of this name. Raises NotFound."""
        return await self._session.read(lambda: queries.get_schedule(tenant, name))

    async def list(
        self,
        *,
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        paused: bool | None = None,
        prefix: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """A page of schedules by tenant and name; `limit` 1 to 1,000. labels: those that have all of these. prefix: of the name.

        A schedule that exists all the while is on exactly one page. Raises InvalidInput: a filter or cursor that is none.
        """
        return await self._session.read(
            lambda: queries.list_schedules(tenant, target, labels, paused, prefix, limit, cursor)
        )

    async def pause(
        self,
        name: str,
        *,
        tenant: str = "default",
        reason: str | None = None,
        until: datetime | None = None,
        if_revision: int | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Schedule:
        """No new run starts from now on (until `until`, if given); runs that exist go on. A pause that stands takes reason and until.

        Idempotent. Raises InvalidInput (until is not in the future), NotFound, Conflict (it is not at if_revision).
        """
        return await self._session.write(
            lambda: steps.pause(tenant, name, reason, until, if_revision), connection, "nudge"
        )

    async def resume(
        self,
        name: str,
        *,
        tenant: str = "default",
        if_revision: int | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Schedule:
        """Fires again from now on; what lay in the pause is no misfire and stays there. Idempotent.

        Raises NotFound, Conflict (it is not at if_revision).
        """
        return await self._session.write(lambda: steps.resume(tenant, name, if_revision), connection, "nudge")

    async def delete(
        self,
        name: str,
        *,
        tenant: str = "default",
        if_revision: int | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> None:
        """Deletes the schedule and cancels its unfinished runs; finished ones stay in the history.

        Raises NotFound, Conflict (it is not at if_revision).
        """
        await self._session.write(lambda: steps.delete(tenant, name, if_revision), connection, "nudge", patient=True)

    async def skip_next(
        self, name: str, *, tenant: str = "default", connection: psycopg.AsyncConnection[Any] | None = None
    ) -> datetime:
        """The next occurrence will not run; returns it. Called twice, it skips two. Raises NotFound, and Conflict: none in reach."""
        return await self._session.write(lambda: upcoming.skip_next(tenant, name), connection)

    async def trigger(
        self, name: str, *, tenant: str = "default", connection: psycopg.AsyncConnection[Any] | None = None
    ) -> str:
        """Starts a run now, beside the occurrences, even of a paused schedule; returns its run id. Raises NotFound."""
        return await self._session.write(lambda: upcoming.trigger(tenant, name), connection, "wake")

    async def next(self, name: str, n: int = 5, *, tenant: str = "default") -> builtins.list[datetime]:
        """The next `n` (1 to 1,000) occurrences that are not skipped, as if the schedule were not paused. Raises NotFound."""
        count = queries.positive(n)
        return await self._session.read(lambda: upcoming.next_runs(tenant, name, count))

    async def why(self, name: str, at: datetime, *, tenant: str = "default") -> Answer:
        """Why it ran at an instant, or did not: one answer, whatever became of the occurrence, and also where there is none.

        at: an instant; a datetime without a zone is a time of the wall clock in the schedule's zone. What is no occurrence itself is
        taken for one of the same minute, and the answer says so. Answers for deleted schedules too, as long as history is kept.

        Raises InvalidInput (not from 1970 to 2106; no zone, and the schedule is deleted), NotFound.
        """
        dead_after_s = self._session.dead_after_s()
        return await self._session.read(lambda: reasons.why(tenant, name, at, dead_after_s))
