"""From the items of a field to the set of numbers they mean, H included."""

import hashlib
from collections.abc import Sequence

from bucketd.timing.fields import DOW, Field, Item, hash_bounds

# A version: a changed rule gets a new prefix, so that no stored H ever moves.
_HASH_PREFIX = "bucketd-cron-h1"


def values_of(field: Field, items: Sequence[Item], seed: str | None) -> tuple[int, ...]:
    """Sorted numbers of all plain items (weekday 7 is 0), without the special day items. H needs `seed`."""
    found: set[int] = set()
    for position, item in enumerate(items):
        found.update(_sequence(field, item, seed, position))
    if field is DOW and 7 in found:
        found.discard(7)
        found.add(0)
    return tuple(sorted(found))


def is_wide_step(field: Field, item: Item) -> bool:
    """True if the step leaves only the first value although it looks as if it would repeat (`*/90`)."""
    return item.form != "hash" and item.step is not None and item.step > len(_plain(field, item))


def _sequence(field: Field, item: Item, seed: str | None, position: int) -> Sequence[int]:
    if item.form == "hash":
        return _hashed(field, item, seed or "", position)
    return _plain(field, item)[:: item.step or 1]


def _plain(field: Field, item: Item) -> Sequence[int]:
    """The values of an item in the order that its step counts."""
    if item.form == "all":
        return range(field.lo, field.top + 1)
    if item.first is None or item.form not in ("value", "range"):
        return ()
    if item.form == "value" and item.step is None:
        return (item.first,)
    first, last = item.first, field.top if item.second is None else item.second
    if first <= last:
        return range(first, last + 1)
    # Weekday 7 leaves the first part empty, so 7-2 is Sunday to Tuesday.
    return (*range(first, field.top + 1), *range(field.lo, last + 1))


def _hashed(field: Field, item: Item, seed: str, position: int) -> Sequence[int]:
    lo, hi = hash_bounds(field, item)
    digest = hashlib.sha256(f"{_HASH_PREFIX}|{seed}|{field.name}|{position}".encode()).digest()
    value = int.from_bytes(digest[:8], "big")
    if item.step is None:
        return (lo + value % (hi - lo + 1),)
    return range(lo + value % item.step, hi + 1, item.step)
