"""Cursors: opaque text that says after which key a list goes on."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

from bucketd.errors import InvalidInput


def encode(kind: str, *key: str | int) -> str:
    """The cursor behind `key`. `kind` keeps the cursor of one list from being used with another."""
    return urlsafe_b64encode(json.dumps([kind, *key], separators=(",", ":")).encode()).decode().rstrip("=")


def decode(kind: str, cursor: str | None, types: tuple[type, ...]) -> tuple[str | int, ...] | None:
    """The key of a cursor; None without one. Raises InvalidInput for text that no list of this kind returned."""
    if cursor is None:
        return None
    try:
        found, *key = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if (
            found != kind
            or len(key) != len(types)
            or not all(type(part) is kind_ for part, kind_ in zip(key, types, strict=True))
        ):
            raise ValueError
    except (ValueError, TypeError):
        raise InvalidInput(
            f"expected a cursor that a list of {kind} returned, got {str(cursor)[:80]!r}", field="cursor"
        ) from None
    return tuple(key)
