"""Whether a report comes from who knows the target's secret: signed with Standard Webhooks, like our own requests.

The signature covers `webhook-id`, `webhook-timestamp` and the body, not the path. So the id has to name what the report is about,
`complete_<run id>_<attempt>` or `heartbeat_<run id>_<attempt>`: one that was overheard can only say the same again. A target
without a secret proves nothing but that it knows run and attempt: then these endpoints belong behind a private network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus

from bucketd.api.messages import Problem
from bucketd.store import secrets
from bucketd.store.errors import Conflict
from bucketd.store.keyring import KeyRing
from bucketd.store.operation import Operation
from bucketd.store.signing import signature

TOLERANCE_S = 300.0  # both ways; the recommendation of Standard Webhooks
SIGNATURES = 10  # of a request that are looked at


def keys_of(target_id: int, ring: KeyRing) -> Operation[list[bytes]]:
    """The keys that a report may be signed with; none: it need not be. Raises Problem if this process cannot open them."""
    try:
        found = yield from secrets.valid(target_id, ring)
    except Conflict as error:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    return [secret.key for secret in found]


def check(keys: Sequence[bytes], webhook_id: str, headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    """Raises Problem unless one of the keys has signed this body under this id, not long ago. Pure."""
    if not keys:
        return
    if headers.get("webhook-id") != webhook_id:  # guard: report-id
        raise _refusal(f"expected webhook-id {webhook_id}, for the signature says by it what is reported")
    timestamp = headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and abs(now_s - int(timestamp[:12])) <= TOLERANCE_S):  # guard: report-time
        raise _refusal(f"expected a webhook-timestamp at most {TOLERANCE_S:g} s away from now, in seconds since 1970")
    given = [text.encode("latin-1") for text in headers.get("webhook-signature", "").split()[:SIGNATURES]]
    ours = [signature([key], webhook_id, int(timestamp), body).encode() for key in keys]
    if not any(compare_digest(one, other) for one in given for other in ours):  # guard: report-signature
        raise _refusal("expected a webhook-signature made with the target's secret")


def _refusal(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"www-authenticate": "StandardWebhooks"})
