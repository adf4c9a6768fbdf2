"""Whether a request is from who has the secret, and of now: Standard Webhooks 1.0. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from bucketd.receiver.refusal import Refused
from bucketd.store.signing import signature

SIGNATURES = 8  # looked at in one header; a sender has two keys at most


def verify(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, *, now_s: float, tolerance_s: float) -> str:
    """The webhook id, if one of the signatures is by one of the keys. `headers`: names in lower case.

    Raises Refused: 401 for a header that is missing or malformed and for an altered body; 425 for what is signed and too far from
    now: it may be replayed, so it is not let in, but bucketd tries it again under a new time, and a clock that is wrong for some
    minutes costs no run.
    """
    try:
        webhook_id, stamp = headers["webhook-id"], headers["webhook-timestamp"]
        given = headers["webhook-signature"].split(" ")[:SIGNATURES]
    except KeyError as missing:
        raise Refused(
            401, f"expected the header {missing.args[0]}, got none: this target takes signed requests"
        ) from None
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise Refused(401, "expected webhook-timestamp to be epoch seconds")
    ours = signature(keys, webhook_id, int(stamp), body).encode().split(b" ")
    theirs = [text.encode("utf-8", "replace") for text in given]
    if not any(hmac.compare_digest(own, other) for own in ours for other in theirs):
        raise Refused(
            401, "expected a signature by the secret of this target over the id, the time and the body as sent"
        )
    if abs(now_s - int(stamp)) > tolerance_s:
        raise Refused(425, f"expected webhook-timestamp within {tolerance_s:g} s of this machine's clock")
    return webhook_id
