"""`Client`: everything that can be done with bucketd, over Postgres alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Self

import psycopg

from bucketd.client import steering, trail
from bucketd.client.backfills import Backfills
from bucketd.client.backlog import Backlogs
from bucketd.client.calendars import Calendars
from bucketd.client.dead import DeadLetters
from bucketd.client.outlook import outlook
from bucketd.client.results import Page
from bucketd.client.runs import Runs
from bucketd.client.schedules import Schedules
from bucketd.client.session import Session, Where
from bucketd.client.targets import Targets
from bucketd.client.tenants import Tenants
from bucketd.forecast.results import Forecast
from bucketd.store import holds, status
from bucketd.store.audit import Change
from bucketd.store.backfills import Backfill
from bucketd.store.config import Settings
from bucketd.store.holds import START, Hold, Place, Release
from bucketd.store.holds import judge as judge_held
from bucketd.store.status import Status


class Client:
    """Puts, reads and steers schedules and their runs.

    dsn: Postgres; without one the settings, or else BUCKETD_* in the environment, are read when the first call needs them.
    actor: who acts, for the audit log (default: the setting, else the database user). redis_url: only to tell the cluster at once
    what it would find within a second anyway. Safe among threads. Nothing is connected before the first call. Close it, or use it in
    a with statement.
    """

    def __init__(
        self,
        dsn: str | None = None,
        redis_url: str | None = None,
        redis_prefix: str | None = None,
        settings: Settings | None = None,
        actor: str | None = None,
    ) -> None:
        self._bind(Session(Where(dsn, redis_url, redis_prefix, settings, actor)))

    def on(self, connection: psycopg.Connection[Any]) -> Client:
        """A client on your own psycopg connection: everything runs in your transaction, and only you commit or roll back.

        What is written takes effect with your commit; the cluster notices within about a second of it.
        """
        bound = Client.__new__(Client)
        bound._bind(self._session.on(connection))
        return bound

    def backfill(
        self,
        from_: datetime,
        to: datetime,
        *,
        name: str | None = None,
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        all: bool = False,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Backfill:
        """Runs the occurrences of [from_, to) that have no run yet, behind live work, even of paused schedules.

        Say which schedules: a filter (name is of tenant "default" unless tenant is given; labels: all of these) or all=True. Returns
        at once; scheduler nodes make the runs, see `client.backfills`.

        Raises InvalidInput (a range that is empty, ends after now, or begins below the retention floor), NotFound (name, target).
        """
        return self._session.write(
            lambda: steering.backfill(from_, to, name, tenant, target, labels, all), connection, "nudge", "wake"
        )

    def hold(
        self,
        *,
        all: bool = False,
        tenant: str | None = None,
        target: str | None = None,
        reason: str = "",
        connection: psycopg.Connection[Any] | None = None,
    ) -> Hold:
        """Starts no run of everything, of a tenant or of a target until the release; what falls due is kept. Calls under way go on.

        Exactly one of all=True, tenant and target. Idempotent. Raises InvalidInput, NotFound (target).
        """
        return self._session.write(lambda: steering.hold(all, tenant, target, reason), connection, "nudge")

    def release(
        self,
        *,
        all: bool = False,
        tenant: str | None = None,
        target: str | None = None,
        breaker: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Release:
        """Ends a hold. What was kept runs by each schedule's misfire policy and deadline; triggers and backfills always run.

        Runs that another hold covers stay held. The hold goes first, then the runs, some thousands a transaction, however many there
        are: if that is interrupted, scheduler nodes go on with it. progress(done): called after each step with the runs judged so
        far. dry_run: only counts what would become of them. Raises InvalidInput, NotFound (no such hold).

        breaker: closes the circuit breaker of the target instead; it opens again at the first failure. A hold of yours stays.
        """
        hold_id = self._session.write(
            lambda: steering.release(all, tenant, target, breaker, dry_run), connection, *(() if dry_run else ("nudge",))
        )
        counts = Release()
        place: Place | None = START
        while place is not None:
            judge = partial(judge_held, place, without=hold_id, dry_run=dry_run)
            step = self._session.write(judge, connection, *(() if dry_run else ("wake",)), patient=True)
            counts, place = counts + step.counts, step.after
            if progress:
                progress(counts.runs)
        return counts

    def holds(self) -> list[Hold]:
        """All holds, oldest first; open circuit breakers are among them, with `kind` breaker."""
        return self._session.read(holds.list_all)

    def status(self) -> Status:
        """The cluster's state in figures. Cheap but for two counts over the index of schedules (0.5 s for 3 million)."""
        dead_after_s = self._session.dead_after_s()
        return self._session.read(lambda: status.read(dead_after_s))

    def audit(
        self,
        *,
        name: str | None = None,
        tenant: str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Change]:
        """A page of the audit log, newest first: who changed what, from what to what; `limit` 1 to 1,000.

        kind: schedule, target, tenant, hold, calendar, backfill or run (what was started, skipped or cancelled by hand). from_ (inclusive)
        and to (exclusive) bound the time. Raises InvalidInput.
        """
        return self._session.read(lambda: trail.changes(name, tenant, kind, actor, from_, to, limit, cursor))

    def forecast(
        self,
        *,
        hours: int = 6,
        by: str = "tenant",
        tenant: str | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        top: int = 10,
        jitter_s: int = 300,
        progress: Callable[[int, int], None] | None = None,
    ) -> Forecast:
        """What falls due in the coming hours (1 to 48): fires a minute, the peaks and who makes them, and what H or jitter would do.

        Schedules that are not paused, or only until then, as they are now (labels: all of these); whether a hold will keep them, or a
        single occurrence was skipped, is not looked at. by: whose loads are listed (tenant, target, partition), the `top` largest.
        jitter_s: what to try on the highest peak. progress(done, total): called now and then. Reads the whole table of schedules twice
        without any lock: seconds for millions, so a coroutine beside it waits while this one computes.

        Raises InvalidInput, NotFound (target).
        """
        return self._session.read(lambda: outlook(hours, by, tenant, target, labels, top, jitter_s, progress))

    def close(self) -> None:
        """Closes the client's own connections. Your own connections stay open."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bind(self, session: Session) -> None:
        self._session = session
        self.targets = Targets(session)
        self.tenants = Tenants(session)
        self.schedules = Schedules(session)
        self.calendars = Calendars(session)
        self.runs = Runs(session)
        self.backfills = Backfills(session)
        self.backlog = Backlogs(session)
        self.dead = DeadLetters(session)
