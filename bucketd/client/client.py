"""`Client`: everything that can be done with bucketd, over Postgres alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

import psycopg

from bucketd.client import steering
from bucketd.client.backfills import Backfills
from bucketd.client.dead import DeadLetters
from bucketd.client.runs import Runs
from bucketd.client.schedules import Schedules
from bucketd.client.session import Session, Where
from bucketd.client.targets import Targets
from bucketd.store import holds, status
from bucketd.store.backfills import Backfill
from bucketd.store.config import Settings
from bucketd.store.holds import Hold, Release
from bucketd.store.status import Status


class Client:
    """Puts, reads and steers schedules and their runs.

    dsn: Postgres; without one the settings, or else BUCKETD_* in the environment, are read when the first call needs them.
    redis_url: only to tell the cluster at once what it would find within a second anyway. Safe among threads. Nothing is
    connected before the first call. Close it, or use it in a with statement.
    """

    def __init__(
        self,
        dsn: str | None = None,
        redis_url: str | None = None,
        redis_prefix: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._bind(Session(Where(dsn, redis_url, redis_prefix, settings)))

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
        connection: psycopg.Connection[Any] | None = None,
    ) -> Release:
        """Ends a hold. What was kept runs by each schedule's misfire policy and deadline; triggers and backfills always run.

        Runs that another hold covers stay held. Raises InvalidInput, NotFound (no such hold).
        """
        return self._session.write(
            lambda: steering.release(all, tenant, target), connection, "nudge", "wake", patient=True
        )

    def holds(self) -> list[Hold]:
        """All holds, oldest first."""
        return self._session.read(holds.list_all)

    def status(self) -> Status:
        """The cluster's state in figures. Cheap but for two counts over the index of schedules (0.5 s for 3 million)."""
        dead_after_s = self._session.dead_after_s()
        return self._session.read(lambda: status.read(dead_after_s))

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
        self.schedules = Schedules(session)
        self.runs = Runs(session)
        self.backfills = Backfills(session)
        self.dead = DeadLetters(session)
