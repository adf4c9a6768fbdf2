"""`client.targets`: the HTTP endpoints that schedules call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import psycopg

from bucketd.client import queries, secrets
from bucketd.client.results import Page
from bucketd.client.session import AsyncSession, Session
from bucketd.client.target_inputs import Body, target_values
from bucketd.store import secrets as sealed
from bucketd.store import targets
from bucketd.store.secrets import Resealed
from bucketd.store.targets import Target


class Targets:
    """Targets are global: every tenant's schedules may call them by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 5,
        timeout_s: float = 30,
        max_attempts: int = 5,
        retry_base_s: float = 10,
        retry_cap_s: float = 3_600,
        batch_max: int = 1,
        batch_linger_ms: int = 0,
        batch_by_tenant: bool = False,
        body: Body = "envelope",
        max_running: int | None = None,
        rate_per_s: float | None = None,
        complete_within_s: int | None = None,
        dead_hook_url: str | None = None,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Target:
        """Creates the target, or makes it as given; `created` and `changed` of the result say which. Idempotent.

        headers: sent with each call; not those that bucketd or the connection sets. timeout_s: of one call, at most 1,800.
        max_attempts: calls a run before it is dead. retry_base_s, retry_cap_s: the n-th retry waits a random time below
        min(cap, base * 2^n). Schedules may say otherwise. batch_max above 1: one request carries up to that many runs, waiting
        batch_linger_ms for more; batch_by_tenant: of one tenant only. body raw: the payload alone, as stored, in place of the
        envelope with the run's id and instants (which stand in the headers too); not for batches.

        max_running (1 to 1,000,000) and rate_per_s (calls, from 0.001): for the whole cluster; what is over waits, and burns no
        attempt. complete_within_s: a 202 is no success; the target promises to report the end itself within so many seconds, at most
        604,800. dead_hook_url: gets a call for each run that dies.

        Raises InvalidInput (nothing was changed), StoreUnavailable.
        """
        values = target_values(
            name, url, headers=headers, connect_timeout_s=connect_timeout_s, timeout_s=timeout_s, max_attempts=max_attempts,
            retry_base_s=retry_base_s, retry_cap_s=retry_cap_s, batch_max=batch_max, batch_linger_ms=batch_linger_ms,
            batch_by_tenant=batch_by_tenant, body=body, max_running=max_running, rate_per_s=rate_per_s,
            complete_within_s=complete_within_s, dead_hook_url=dead_hook_url,
        )  # fmt: skip
        return self._session.write(lambda: targets.put(values), connection)

    def get(self, name: str) -> Target:
        """The target of this name. Raises NotFound."""
        return self._session.read(lambda: targets.get(name))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Target]:
        """A page of targets by name; `limit` 1 to 1,000."""
        return self._session.read(lambda: queries.list_targets(limit, cursor))

    def delete(self, name: str, *, connection: psycopg.Connection[Any] | None = None) -> None:
        """Deletes a target that nothing uses. Raises NotFound, and Conflict while schedules or unfinished runs use it."""
        self._session.write(lambda: targets.delete(name), connection)

    def rotate_secret(
        self,
        name: str,
        secret: str | None = None,
        *,
        keep_old_s: int = 86_400,
        connection: psycopg.Connection[Any] | None = None,
    ) -> str:
        """Gives the target a new secret, with which its requests are signed from now on (Standard Webhooks 1.0); returns it.

        It is shown this once and stored sealed by the setting secret_keys. secret: your own, `whsec_` and base64 of 24 to 64 bytes
        (to give the one that it has changes nothing, so that can be repeated); None: one is made. keep_old_s: for so long requests
        carry a signature by the old secret too, 2,592,000 at most; the one before that ends now.

        Raises InvalidInput, NotFound, ConfigError (no secret_keys to seal it with).
        """
        ring = self._session.keyring()
        return self._session.write(lambda: secrets.rotate(name, secret, keep_old_s, ring), connection)

    def drop_secret(self, name: str, *, connection: psycopg.Connection[Any] | None = None) -> None:
        """Takes the secret from the target, old one and all: it is called unsigned from then on. Idempotent. Raises NotFound."""
        self._session.write(lambda: secrets.drop(name), connection)

    def reseal_secrets(
        self, *, progress: Callable[[int], None] | None = None, connection: psycopg.Connection[Any] | None = None
    ) -> Resealed:
        """Seals the secrets of all targets anew with the first of secret_keys, so that the others can be taken out.

        Some hundreds a transaction; repeating is harmless. progress(done): called after each. Raises ConfigError (no secret_keys).
        """
        ring = self._session.keyring()
        counts = Resealed()
        after: int | None = 0
        while after is not None:
            step = self._session.write(partial(sealed.reseal, after, ring), connection)
            counts, after = counts + step.counts, step.after
            if progress:
                progress(counts.secrets)
        return counts


class AsyncTargets:
    """Targets are global: every tenant's schedules may call them by name."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def put(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 5,
        timeout_s: float = 30,
        max_attempts: int = 5,
        retry_base_s: float = 10,
        retry_cap_s: float = 3_600,
        batch_max: int = 1,
        batch_linger_ms: int = 0,
        batch_by_tenant: bool = False,
        body: Body = "envelope",
        max_running: int | None = None,
        rate_per_s: float | None = None,
        complete_within_s: int | None = None,
        dead_hook_url: str | None = None,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> Target:
        """Creates the target, or makes it as given; `created` and `changed` of the result say which. Idempotent.

        headers: sent with each call; not those that bucketd or the connection sets. timeout_s: of one call, at most 1,800.
        max_attempts: calls a run before it is dead. retry_base_s, retry_cap_s: the n-th retry waits a random time below
        min(cap, base * 2^n). Schedules may say otherwise. batch_max above 1: one request carries up to that many runs, waiting
        batch_linger_ms for more; batch_by_tenant: of one tenant only. body raw: the payload alone, as stored, in place of the
        envelope with the run's id and instants (which stand in the headers too); not for batches.

        max_running (1 to 1,000,000) and rate_per_s (calls, from 0.001): for the whole cluster; what is over waits, and burns no
        attempt. complete_within_s: a 202 is no success; the target promises to report the end itself within so many seconds, at most
        604,800. dead_hook_url: gets a call for each run that dies.

        Raises InvalidInput (nothing was changed), StoreUnavailable.
        """
        values = target_values(
            name, url, headers=headers, connect_timeout_s=connect_timeout_s, timeout_s=timeout_s, max_attempts=max_attempts,
            retry_base_s=retry_base_s, retry_cap_s=retry_cap_s, batch_max=batch_max, batch_linger_ms=batch_linger_ms,
            batch_by_tenant=batch_by_tenant, body=body, max_running=max_running, rate_per_s=rate_per_s,
            complete_within_s=complete_within_s, dead_hook_url=dead_hook_url,
        )  # fmt: skip
        return await self._session.write(lambda: targets.put(values), connection)

    async def get(self, name: str) -> Target:
        """The target of this name. Raises NotFound."""
        return await self._session.read(lambda: targets.get(name))

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Target]:
        """A page of targets by name; `limit` 1 to 1,000."""
        return await self._session.read(lambda: queries.list_targets(limit, cursor))

    async def delete(self, name: str, *, connection: psycopg.AsyncConnection[Any] | None = None) -> None:
        """Deletes a target that nothing uses. Raises NotFound, and Conflict while schedules or unfinished runs use it."""
        await self._session.write(lambda: targets.delete(name), connection)

    async def rotate_secret(
        self,
        name: str,
        secret: str | None = None,
        *,
        keep_old_s: int = 86_400,
        connection: psycopg.AsyncConnection[Any] | None = None,
    ) -> str:
        """Gives the target a new secret, with which its requests are signed from now on (Standard Webhooks 1.0); returns it.

        It is shown this once and stored sealed by the setting secret_keys. secret: your own, `whsec_` and base64 of 24 to 64 bytes
        (to give the one that it has changes nothing, so that can be repeated); None: one is made. keep_old_s: for so long requests
        carry a signature by the old secret too, 2,592,000 at most; the one before that ends now.

        Raises InvalidInput, NotFound, ConfigError (no secret_keys to seal it with).
        """
        ring = self._session.keyring()
        return await self._session.write(lambda: secrets.rotate(name, secret, keep_old_s, ring), connection)

    async def drop_secret(self, name: str, *, connection: psycopg.AsyncConnection[Any] | None = None) -> None:
        """Takes the secret from the target, old one and all: it is called unsigned from then on. Idempotent. Raises NotFound."""
        await self._session.write(lambda: secrets.drop(name), connection)

    async def reseal_secrets(
        self, *, progress: Callable[[int], None] | None = None, connection: psycopg.AsyncConnection[Any] | None = None
    ) -> Resealed:
        """Seals the secrets of all targets anew with the first of secret_keys, so that the others can be taken out.

        Some hundreds a transaction; repeating is harmless. progress(done): called after each. Raises ConfigError (no secret_keys).
        """
        ring = self._session.keyring()
        counts = Resealed()
        after: int | None = 0
        while after is not None:
            step = await self._session.write(partial(sealed.reseal, after, ring), connection)
            counts, after = counts + step.counts, step.after
            if progress:
                progress(counts.secrets)
        return counts
