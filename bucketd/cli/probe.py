"""One call to a target outside of any schedule: is it there, does it accept, how long does it take?"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import bucketd
from bucketd.store.model import run_id
from bucketd.store.signing import signature

if TYPE_CHECKING:
    from bucketd.client import Target
    from bucketd.store.config import Settings

NOBODY = UUID(int=0)  # no schedule has this id: a target that stores run ids keeps it apart
EXCERPT = 200


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it. `status` is None if there was no answer."""

    target: str
    url: str
    ok: bool
    status: int | None
    latency_ms: float
    error: str | None
    advice: str | None
    body_start: str


def keys_of(target: Target, settings: Settings) -> list[bytes]:
    """What the target's requests are signed with. Raises Conflict if the key ring of the settings cannot open it."""
    from bucketd.client.session import Session, Where
    from bucketd.store.secrets import valid

    stores = Session(Where(None, None, None, settings, None))
    try:
        return [secret.key for secret in stores.read(lambda: valid(target.id, stores.keyring()))]
    finally:
        stores.close()


def probe(target: Target, payload: Any, keys: Sequence[bytes] = ()) -> Probe:
    """Makes the call, with the target's own headers and time-outs, signed. Never raises for what the target does."""
    import httpx

    now = datetime.now(UTC)
    content, headers = _request(target, payload, now)
    if keys:
        headers["webhook-signature"] = signature(keys, headers["webhook-id"], int(now.timestamp()), content)
    timeout = httpx.Timeout(target.timeout_s, connect=target.connect_timeout_s)
    begun = time.monotonic()
    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", target.url, content=content, headers=headers) as answer,
        ):
            start = next(answer.iter_bytes(EXCERPT), b"").decode(errors="replace")  # not all: it may be endless
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return Probe(target.name, target.url, False, None, _since(begun), text, _advice_without_answer(error), "")
    status, ok = answer.status_code, answer.is_success
    return Probe(target.name, target.url, ok, status, _since(begun), None, _advice(status), start)


def _request(target: Target, payload: Any, now: datetime) -> tuple[bytes, dict[str, str]]:
    identity = run_id(NOBODY, now)
    envelope = {
        "run_id": identity,
        "schedule": "bucketd-test",
        "tenant": "default",
        "scheduled_at": now.isoformat().replace("+00:00", "Z"),
        "previous_at": None,
        "next_at": None,
        "attempt": 1,
        "payload": payload,
    }
    body: Any = payload if target.body == "raw" else envelope
    headers = {
        "content-type": "application/json",
        "user-agent": f"bucketd/{bucketd.__version__}",
        "webhook-id": identity,
        "webhook-timestamp": str(int(now.timestamp())),
        "idempotency-key": identity,
        "bucketd-attempt": "1",
        "bucketd-test": "1",
    }
    if target.batch_max > 1:
        body = [body]
        batch = f"batch_{secrets.token_hex(8)}"
        headers |= {"webhook-id": batch, "idempotency-key": batch, "bucketd-batch": "1"}
    if target.body == "raw":
        headers |= {f"bucketd-{name}": str(envelope[name]) for name in ("schedule", "tenant")}
        headers["bucketd-scheduled-at"] = str(envelope["scheduled_at"])
    return json.dumps(body, separators=(",", ":")).encode(), {**target.headers, **headers}


def _since(begun: float) -> float:
    return round((time.monotonic() - begun) * 1000, 1)


def _advice(status: int) -> str | None:
    match status:
        case status if 200 <= status < 300:
            return None
        case status if 300 <= status < 400:
            return "redirects are not followed: give the target its final URL; such a run would be dead at once"
        case 408 | 425 | 429:
            return "such a run would be tried again later"
        case status if status >= 500:
            return "such a run would be tried again later; look into the target's own log"
    return "such a run would be dead at once: the target refuses the call; check URL, path and headers"


def _advice_without_answer(error: Exception) -> str:
    import httpx

    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return (
            "check that the host resolves, listens and can be reached from here; such a run would be tried again later"
        )
    if isinstance(error, httpx.TimeoutException):
        return "raise --timeout, or let the target answer sooner; such a run would be tried again later"
    return "such a run would be tried again later"
