"""What an answer means, and when the next attempt is. Pure: no clock, no I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto

RETRYABLE = frozenset({408, 425, 429})
ERROR_CHARS = 1_000  # of an error's text in a row


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


def delay_s(attempt: int, *, base_s: float, cap_s: float, draw: float, retry_after_s: float | None = None) -> float:
    """Seconds to the next attempt after attempt number `attempt` (from 1): full jitter, random(0, min(cap, base * 2^n)).

    `draw` in [0, 1). What the target asks for by Retry-After is a lower bound, itself at most `cap_s`.
    """
    exponent = min(attempt - 1, 60)  # beyond, any cap has long won
    drawn = draw * min(cap_s, base_s * 2.0**exponent)
    return max(drawn, min(retry_after_s or 0.0, cap_s))


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


def error_text(text: str) -> str:
    """An error as it may stand in a row: no NUL (Postgres has none), bounded."""
    return text.replace("\x00", "")[:ERROR_CHARS]
