"""Requests as bucketd sends them, with a signature made here and now."""

import base64
import hashlib
import hmac
import json
from typing import Any

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW_S = 1_800_000_000
RUN_ID = "20261201T000000Z-" + "3f" * 16


def envelope(attempt: Any = 1, run_id: Any = RUN_ID, **changed: Any) -> dict[str, Any]:
    """The envelope of one run."""
    return {
        "run_id": run_id,
        "schedule": "nightly",
        "tenant": "acme",
        "scheduled_at": "2026-12-01T00:00:00Z",
        "previous_at": None,
        "next_at": "2026-12-02T00:00:00.250000Z",
        "attempt": attempt,
        "payload": {"full": True},
        **changed,
    }


def signed(
    content: Any, *, webhook_id: str = RUN_ID, at_s: int = NOW_S, secrets: tuple[str, ...] = (SECRET,), **headers: Any
) -> tuple[dict[str, str], bytes]:
    """Headers and body. `content` that is no bytes goes as JSON; keywords are further headers, with _ for -."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    text = f"{webhook_id}.{at_s}.".encode() + body
    codes = (hmac.new(base64.b64decode(one[6:]), text, hashlib.sha256).digest() for one in secrets)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join("v1," + base64.b64encode(code).decode() for code in codes),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }, body
