"""Checks of single values before anything is written. Each raises InvalidInput with the field, what was expected and what came."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from bucketd.errors import InvalidInput

PAYLOAD_MAX_BYTES = 65_536
INTEGER_MAX = 2**31 - 1
# Nul and its like cannot be stored or would corrupt logs and screens; a lone surrogate is no text at all.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def name(value: object, field: str, *, longest: int = 255) -> str:
    """A name of 1 to `longest` printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise InvalidInput(
            f"expected {field} to be text of 1 to {longest} characters, got {_shown(value)}", field=field
        )
    found = _FORBIDDEN.search(value)
    if found:
        raise InvalidInput(
            f"expected {field} without control characters, got {found.group()!a} in {_shown(value)}", field=field
        )
    return value


def payload(value: object) -> str:
    """JSON text of at most 64 KiB."""
    try:
        text = _compact(value)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError: a lone surrogate
        raise InvalidInput(
            f"expected a payload that is JSON (objects, lists, text, finite numbers): {error}", field="payload"
        ) from error
    if size > PAYLOAD_MAX_BYTES:
        raise InvalidInput(
            f"expected a payload of at most {PAYLOAD_MAX_BYTES:,} bytes as JSON, got {size:,}; store it elsewhere and pass its id",
            field="payload",
        )
    return text


def labels(value: object) -> str:
    """JSON text of a map from text to text, at most 64 entries."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"expected labels to be a map of text to text, got {_shown(value)}", field="labels")
    try:
        return _labels(tuple(value.items()))
    except TypeError:  # an entry that cannot be hashed is no text either
        return _labels.__wrapped__(tuple(value.items()))


@lru_cache(maxsize=4_096)  # schedules by the million share a few sets of labels
def _labels(entries: tuple[tuple[object, object], ...]) -> str:
    if len(entries) > 64:
        raise InvalidInput(f"expected at most 64 labels, got {len(entries)}", field="labels")
    for key, text in entries:
        name(key, "labels")
        if not isinstance(text, str) or len(text) > 255 or _FORBIDDEN.search(text):
            raise InvalidInput(
                f"expected label {key!r} to be printable text of at most 255 characters, got {_shown(text)}",
                field="labels",
            )
    return _compact(dict(entries))


def integer(value: object, field: str, low: int, high: int = INTEGER_MAX) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(
            f"expected {field} to be a whole number from {low} to {high}, got {_shown(value)}", field=field
        )
    return value


def number(value: object, field: str, low: float, high: float) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(
            f"expected {field} to be a number from {low:g} to {high:g}, got {_shown(value)}", field=field
        )
    return float(value)


def attempts(value: object) -> int:
    """How many attempts a run may have."""
    return integer(value, "max_attempts", 1, 100)


def retry_base(value: object) -> float:
    """The largest delay before the second attempt, seconds."""
    return number(value, "retry_base_s", 0, 86_400)


def retry_cap(value: object) -> float:
    """The largest delay before any attempt, seconds."""
    return number(value, "retry_cap_s", 0, 604_800)


def max_running(value: object) -> int:
    """How many runs may go on at once."""
    return integer(value, "max_running", 1, 1_000_000)


def choice(value: object, field: str, known: tuple[str, ...]) -> str:
    """One of the known words."""
    if value not in known:
        raise InvalidInput(f"expected {field} to be one of {', '.join(known)}, got {_shown(value)}", field=field)
    return str(value)


def dates(value: object, field: str, *, most: int = 1_000) -> tuple[date, ...]:
    """Distinct dates in order."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidInput(f"expected {field} to be a list of dates, got {_shown(value)}", field=field)
    found = set()
    for one in value:
        if isinstance(one, datetime) or not isinstance(one, date):
            raise InvalidInput(f"expected {field} to hold datetime.date values, got {_shown(one)}", field=field)
        found.add(one)
    if len(found) > most:
        raise InvalidInput(f"expected at most {most:,} dates in {field}, got {len(found):,}", field=field)
    return tuple(sorted(found))


def names(value: object, field: str, *, most: int = 20) -> tuple[str, ...]:
    """Distinct names in order."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidInput(f"expected {field} to be a list of names, got {_shown(value)}", field=field)
    found = {name(one, field) for one in value}
    if len(found) > most:
        raise InvalidInput(f"expected at most {most} names in {field}, got {len(found)}", field=field)
    return tuple(sorted(found))


def flag(value: object, field: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidInput(f"expected {field} to be True or False, got {_shown(value)}", field=field)
    return value


def limit(value: object) -> int:
    """How many items a page may have: 1 to 1,000."""
    return integer(value, "limit", 1, 1_000)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
