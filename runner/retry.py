"""What an answer means. Pure: no clock, no I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto

RETRYABLE = frozenset({408, 425, 429})


class Class(Enum):
    """Classes of answers."""

    SUCCESS = auto()
    RETRY = auto()
    REJECTED = auto()  # no retry heals it: other 4xx, redirects, a request that cannot be built


def classify(status: int) -> Class:
    """Class of an HTTP status."""
    if 200 <= status < 300:
        return Class.SUCCESS
    if status in RETRYABLE or 500 <= status < 600:
        return Class.RETRY
    return Class.REJECTED


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds a Retry-After header asks for, from seconds or an HTTP date; None if there is none to understand."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
