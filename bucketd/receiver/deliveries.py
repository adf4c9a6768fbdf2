"""From the body of a verified request to the runs in it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from bucketd.receiver.refusal import Refused

BATCH = "batch_"  # how the id of a request of many runs begins
RAW_MARK = "bucketd-schedule"  # stands in requests whose body is the payload alone


@dataclass(frozen=True, slots=True)
class Run:
    """One occurrence that is to be done. Instants are aware, in UTC; previous_at and next_at are None where bucketd does not know."""

    run_id: str  # the same in every attempt: what was done under it must not be done again
    schedule: str
    tenant: str
    scheduled_at: datetime
    previous_at: datetime | None
    next_at: datetime | None
    attempt: int
    payload: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request. `runs`: to be done; `stale`: of a later attempt than which they came, not to be done."""

    webhook_id: str
    runs: tuple[Run, ...]
    is_batch: bool = False
    stale: tuple[Run, ...] = ()

    def report(self, statuses: Mapping[str, int] | None = None) -> bytes:
        """JSON to answer a batch with, status 200: by run id what became of the runs that were not done (503: do it again, 422: do not).

        Runs that are not in it count as done; stale ones are added as 409.
        """
        all_of_them = {**(statuses or {}), **{run.run_id: 409 for run in self.stale}}
        return json.dumps({"runs": [{"run_id": key, "status": value} for key, value in all_of_them.items()]}).encode()


def parse(webhook_id: str, headers: Mapping[str, str], body: bytes, *, raw: bool) -> Delivery:
    """What is in a verified request. `raw`: the target's body is the payload alone. Raises Refused (400)."""
    if raw != (RAW_MARK in headers):
        raise Refused(
            400, f"expected {'the raw payload' if raw else 'the envelope'}, got the other; compare the target's body"
        )
    try:
        content = json.loads(body)
        if raw:
            return Delivery(webhook_id, (_from_headers(webhook_id, headers, content),))
        if isinstance(content, list):
            runs = tuple(_from_envelope(item) for item in content)
            is_batch = True
        else:
            runs, is_batch = (_from_envelope(content),), False
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(400, f"expected a request of bucketd, got another: {type(error).__name__}") from None
    # The id is signed and bucketd's own: a payload of a tenant that looks like an envelope has none of its own.
    if not (webhook_id.startswith(BATCH) if is_batch else webhook_id == runs[0].run_id):
        raise Refused(400, "expected webhook-id to be that of the run, or to begin with batch_")
    return Delivery(webhook_id, runs, is_batch)


def _from_envelope(item: Any) -> Run:
    return _run(item, item["attempt"], item["payload"])


def _from_headers(webhook_id: str, headers: Mapping[str, str], payload: Any) -> Run:
    """Standard Webhooks signs id, time and body: what these headers say is as trustworthy as the connection."""
    facts = {
        "run_id": webhook_id,
        "schedule": unquote(headers[RAW_MARK], errors="strict"),
        "tenant": unquote(headers["bucketd-tenant"], errors="strict"),
        "scheduled_at": headers["bucketd-scheduled-at"],
        "previous_at": headers.get("bucketd-previous-at"),
        "next_at": headers.get("bucketd-next-at"),
    }
    return _run(facts, int(headers["bucketd-attempt"]), payload)


def _run(facts: Mapping[str, Any], attempt: Any, payload: Any) -> Run:
    run_id, schedule, tenant = (_text(facts[name]) for name in ("run_id", "schedule", "tenant"))
    if type(attempt) is not int or attempt < 1:
        raise ValueError
    before, after = facts["previous_at"], facts["next_at"]
    return Run(
        run_id,
        schedule,
        tenant,
        _instant(facts["scheduled_at"]),
        None if before is None else _instant(before),
        None if after is None else _instant(after),
        attempt,
        payload,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.utcoffset() is None:
        raise ValueError
    return at
