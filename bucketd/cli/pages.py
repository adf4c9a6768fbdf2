"""Walks the pages of a listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

PAGE = 1_000


def items(listing: Callable[..., Any], limit: int | None = None, **wanted: Any) -> Iterator[Any]:
    """Items of `listing(limit=.., cursor=.., **wanted)`, at most `limit`; a page is fetched when it is needed."""
    cursor, left = None, limit
    while left is None or left > 0:
        page = listing(limit=PAGE if left is None else min(PAGE, left), cursor=cursor, **wanted)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return
        if left is not None:
            left -= len(page.items)
