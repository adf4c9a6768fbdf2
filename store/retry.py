"""When the next attempt of a failed run is. Pure: runners decide by it, and so does who reports the end of a long run."""

from __future__ import annotations

from typing import NamedTuple

ERROR_CHARS = 1_100  # of an error's text in a row: an answer's first KiB, and what stands before it


class Own(NamedTuple):
    """What a schedule says itself about its retries; None: its target decides."""

    max_attempts: int | None
    base_s: float | None
    cap_s: float | None


class Policy(NamedTuple):
    """How a run is retried: at most `max_attempts` attempts, delays from `base_s`, doubling, up to `cap_s`."""

    max_attempts: int
    base_s: float
    cap_s: float

    def with_own(self, own: Own | None) -> Policy:
        """This, a target's, for runs of a schedule that has something of its own to say."""
        said = own._asdict() if own else {}
        return self._replace(**{name: value for name, value in said.items() if value is not None})

    def next_s(self, attempt: int, draw: float, retry_after_s: float | None = None) -> float | None:
        """Seconds from the failure of this attempt to the next one; None: it was the last. Otherwise as `delay_s`."""
        if attempt >= self.max_attempts:
            return None
        return delay_s(attempt, base_s=self.base_s, cap_s=self.cap_s, draw=draw, retry_after_s=retry_after_s)


def delay_s(attempt: int, *, base_s: float, cap_s: float, draw: float, retry_after_s: float | None = None) -> float:
    """Seconds to the next attempt after attempt number `attempt` (from 1): full jitter, random(0, min(cap, base * 2^n)).

    `draw` in [0, 1). What the target asks for by Retry-After is a lower bound, itself at most `cap_s`.
    """
    exponent = min(attempt - 1, 60)  # beyond, any cap has long won
    drawn = draw * min(cap_s, base_s * 2.0**exponent)
    return max(drawn, min(retry_after_s or 0.0, cap_s))


def error_text(text: str) -> str:
    """An error as it may stand in a row: no NUL and no half of a character (Postgres has neither), bounded."""
    return text.replace("\x00", "")[:ERROR_CHARS].encode("utf-8", "replace").decode()
