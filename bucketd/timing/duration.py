"""Durations as people write them, in whole seconds."""

import re
from datetime import timedelta

from bucketd.timing.errors import TimingError

LONGEST_S = 3_650 * 86_400

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_TEXT = re.compile(r"(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]+")
_LONGEST_TEXT = 64


def parse_duration(text: str | int | timedelta) -> int:
    """Whole seconds, 1 s to 3,650 days: ``"90s"``, ``"1h30m0s"``, ``"2d"``, ``"90"`` or ``90`` (seconds), a timedelta.

    Units are w, d, h, m, s, largest first, each at most once. Raises `TimingError` with code ``bad_duration``.
    """
    if isinstance(text, timedelta):
        if text.microseconds:
            raise _bad(text)
        seconds = text.days * 86_400 + text.seconds
    elif isinstance(text, int) and not isinstance(text, bool):
        seconds = text
    elif isinstance(text, str):
        seconds = _read(text)
    else:
        raise _bad(text)
    if not 1 <= seconds <= LONGEST_S:
        raise _bad(text)
    return seconds


def _read(text: str) -> int:
    stripped = text.strip(" \t")
    if len(stripped) > _LONGEST_TEXT:
        raise _bad(text)
    if _SECONDS.fullmatch(stripped):
        return int(stripped)
    match = _TEXT.fullmatch(stripped)
    if match is None or not stripped:
        raise _bad(text)
    return sum(int(count) * unit_s for count, unit_s in zip(match.groups("0"), _UNITS_S.values(), strict=True))


def _bad(value: object) -> TimingError:
    shown = repr(value)[:80]
    return TimingError(
        "bad_duration",
        f"expected a duration of whole seconds from 1s to 3650d, such as 90s, 15m, 1h30m or 2d, got {shown}",
        token=value[:80] if isinstance(value, str) else None,
    )
