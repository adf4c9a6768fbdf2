"""What a request says besides its body: headers, signature and time-out. Pure.

`webhook-id`, `webhook-timestamp` and `webhook-signature` are those of Standard Webhooks 1.0. The body of a raw target is the
payload alone, as stored; what the envelope says of its run then stands in headers.
"""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import quote

from bucketd.runner.bodies import taken_apart
from bucketd.runner.run import Run
from bucketd.store.runners import CallTarget
from bucketd.store.signing import signature

LONGEST_CALL_S = 1800.0
USER_AGENT = f"bucketd/{version('bucketd')}"
INSTANTS = ("scheduled_at", "previous_at", "next_at")
PLAIN = (
    "!#$&'()*+,/:;=?@[]"  # stand for themselves in the header of a name; all but these and letters are percent-encoded
)


def request_of(run: Run, target: CallTarget, now_s: float) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the call of one run; `now_s` by the cluster's clock."""
    own = {"bucketd-attempt": str(run.attempt)}
    text = run.body
    if target.body == "raw":
        facts, text = taken_apart(run.body)
        own |= {
            "bucketd-schedule": quote(facts["schedule"], safe=PLAIN),
            "bucketd-tenant": quote(facts["tenant"], safe=PLAIN),
            **{f"bucketd-{name.replace('_', '-')}": facts[name] for name in INSTANTS if facts[name]},
        }
    content = text.encode()
    return content, headers_of(target, run.run_id, content, now_s) | own


def headers_of(target: CallTarget, webhook_id: str, content: bytes, now_s: float) -> dict[str, str]:
    """Headers of every request; the target's own come first and cannot replace ours.

    Signed with each secret that is valid now, by the cluster's clock: receivers refuse a time that is minutes off, and this machine's may
    be. A target without any secret gets no signature.
    """
    headers = {
        **{name.lower(): value for name, value in target.headers.items()},
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(now_s)),
        "idempotency-key": webhook_id,
    }
    keys = [secret.key for secret in target.secrets if secret.until_s is None or now_s < secret.until_s]
    if keys:
        headers["webhook-signature"] = signature(keys, webhook_id, int(now_s), content)
    return headers


def timeout_s(own_s: int | None, target: CallTarget) -> float:
    """The call's time-out: the schedule's own or the target's."""
    return min(float(own_s or target.timeout_s), LONGEST_CALL_S)
