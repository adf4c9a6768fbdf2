"""The checker: signature, then content, then attempts; nothing is parsed of a request that is not bucketd's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from bucketd.receiver.asgi import AsgiApp, AsgiGate
from bucketd.receiver.attempts import Attempts, RecentAttempts
from bucketd.receiver.deliveries import Delivery, parse
from bucketd.receiver.refusal import Refused
from bucketd.receiver.signed import verify
from bucketd.receiver.wsgi import WsgiApp, WsgiGate
from bucketd.store.signing import key_of

TOLERANCE_S = 300.0
BODY_BYTES = 2 * 1024 * 1024  # bucketd sends little more than 1 MiB


class Receiver:
    """Checks requests for one target. Safe among threads and tasks.

    secrets: the target's, `whsec_..`; during a rotation the old one too, if this one is to accept it longer. tolerance_s: how far the
    time of a request may be from now, either way. attempts: where they are remembered (default: this process). raw: the target's body
    is the payload alone; run facts then come by headers, which are not signed. clock: epoch seconds, for tests.
    """

    def __init__(
        self,
        secrets: str | Iterable[str],
        *,
        tolerance_s: float = TOLERANCE_S,
        attempts: Attempts | None = None,
        raw: bool = False,
        body_bytes: int = BODY_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError: no secret, or a malformed one."""
        self._keys = [key_of(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
        if not self._keys:
            raise ValueError("expected at least one secret, got none")
        self._tolerance_s = tolerance_s
        self._attempts = RecentAttempts() if attempts is None else attempts
        self._raw = raw
        self._clock = clock
        self.body_bytes = body_bytes

    def verified(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """The runs of a request that is bucketd's, whatever their attempts. `body`: byte by byte as it came.

        Raises Refused: 401 (signature), 425 (time), 400 (content), 413.
        """
        if len(body) > self.body_bytes:
            raise Refused(413, f"expected at most {self.body_bytes:,} bytes")
        lower = {name.lower(): value for name, value in headers.items()}
        webhook_id = verify(self._keys, lower, body, now_s=self._clock(), tolerance_s=self._tolerance_s)
        return parse(webhook_id, lower, body, raw=self._raw)

    def check(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """`verified`, and the attempts: those that a later one has overtaken are in `stale`.

        Raises Refused as `verified`, and with 409 if nothing is left to be done.
        """
        delivery = self.verified(headers, body)
        fresh = {run.run_id for run in delivery.runs if self._attempts.raise_to(run.run_id, run.attempt)}
        runs = tuple(run for run in delivery.runs if run.run_id in fresh)
        if delivery.runs and not runs:
            raise Refused(409, f"a later attempt than {delivery.runs[0].attempt} has come already")
        return replace(delivery, runs=runs, stale=tuple(run for run in delivery.runs if run.run_id not in fresh))

    def asgi(self, app: AsgiApp) -> AsgiGate:
        """The application behind this check; it finds the Delivery in `scope["bucketd.delivery"]`.

        `attempts` of your own are asked in the event loop: if that may take long, use `verified` and ask them yourself.
        """
        return AsgiGate(app, self.check, self.body_bytes)

    def wsgi(self, app: WsgiApp) -> WsgiGate:
        """The application behind this check; it finds the Delivery in `environ["bucketd.delivery"]`."""
        return WsgiGate(app, self.check, self.body_bytes)
