"""How many runs a backfill or an owed window may still make: from the specs, with bounded work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketd.store.waiting import Share
from bucketd.timing import CronSpec, Spec, count_between
from bucketd.timing.offsets import DAY_S

COUNTED = 1_000_000  # occurrences of crons that are counted one by one; beyond, as many as their times of day allow


def at_most(shares: Sequence[Share], specs: Mapping[int, Spec], low_s: int, high_s: int) -> int:
    """No more occurrences of these schedules than this have a nominal instant in [low_s, high_s), epoch seconds.

    Those that have a run already are counted too. A cron without a spec counts for every minute.
    """
    budget, total = COUNTED, 0
    length_s = max(0, high_s - low_s)
    for share in shares:
        spec = specs.get(share.spec_id)
        if share.spec_kind == "at":
            total += share.inside
            continue
        if share.every_s is not None:
            each = -(-length_s // share.every_s)  # which phase they have is not known here
        elif not isinstance(spec, CronSpec):
            each = -(-length_s // 60)
        else:
            # Two days more than the range touches: the hour that a zone repeats, in however many years.
            dense = (length_s // DAY_S + 3) * len(spec.minute) * len(spec.hour)
            if dense <= budget:
                budget -= dense
                each = count_between(spec, low_s, high_s)
            else:
                each = min(dense, -(-length_s // 60))
        total += share.schedules * (min(each, share.most) if share.most else each)
    return total
