"""Which fires are a crowd: what one tenant has due at one instant in very large numbers.

A crowd goes through buckets and queues of its own, which runners read beside the others (runner/backlog.py): another tenant's fires,
of the same instant or of the next, do not stand behind it. Judged a batch of the planner at a time, so a fire that is planned twice
may stand in both places; the key of `runs` absorbs the second, as it absorbs any.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from bucketd.store.buckets import BucketId
from bucketd.store.fires import TENANT_HASH

CROWD = 500  # of the 5,000 fires or so of a batch
Flat = list[int | bytes]  # due in ms, member, due in ms, ..


def apart(entries: Mapping[BucketId, Flat], most: int = CROWD) -> Mapping[BucketId, Flat]:
    """The same fires, with those of crowds in buckets of crowds. A batch without one costs a count of its instants."""
    instants: Counter[int | bytes] = Counter()
    for flat in entries.values():
        instants.update(flat[::2])
    full = {due_ms for due_ms, fires in instants.items() if fires >= most}
    return _split(entries, full, most) if full else entries


def _split(entries: Mapping[BucketId, Flat], full: set[int | bytes], most: int) -> Mapping[BucketId, Flat]:
    crowds = Counter(
        (due_ms, member[TENANT_HASH])  # type: ignore[index]
        for flat in entries.values()
        for due_ms, member in zip(flat[::2], flat[1::2], strict=True)
        if due_ms in full
    )
    them = {crowd for crowd, fires in crowds.items() if fires >= most}
    if not them:
        return entries
    found: defaultdict[BucketId, Flat] = defaultdict(list)
    for bucket, flat in entries.items():
        places = (found[bucket], found[bucket._replace(crowd=True)])
        for due_ms, member in zip(flat[::2], flat[1::2], strict=True):
            places[(due_ms, member[TENANT_HASH]) in them].extend((due_ms, member))  # type: ignore[index]
    return {bucket: flat for bucket, flat in found.items() if flat}
