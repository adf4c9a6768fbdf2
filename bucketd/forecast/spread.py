"""What H or a jitter would make of the schedules at a peak, computed one by one with the rules by which both are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import md5

from bucketd.forecast.timetable import HOUR, Window, hash_step
from bucketd.store.forecast import LONGEST_JITTER_S, Member
from bucketd.timing import CronSpec, EverySpec, Spec, fires_between
from bucketd.timing.expand import values_of
from bucketd.timing.fields import MINUTE, read_field


class Mover:
    """Takes members of a peak off the curve of a region, and puts them where a change would put them.

    before: fires of each second of the region, members included. A change holds from `now_s` on, as an edit does.
    """

    def __init__(
        self, region: Window, before: Sequence[int], members: Sequence[Member], specs: Mapping[int, Spec], now_s: float
    ) -> None:
        self._region = region
        self._before = before
        self._members = members
        self._specs = specs
        self._now_s = now_s
        self._cron_fires = cache(self._fires_of_cron)

    def hashed(self) -> tuple[list[int], int]:
        """Fires of each second with H in the minute field, and how many schedules that changes."""
        after, moved = list(self._before), 0
        for member in self._members:
            spec = self._specs[member.spec_id]
            step = hash_step(spec.minute) if isinstance(spec, CronSpec) else None
            if not isinstance(spec, CronSpec) or step is None:
                continue
            item = "h" if step == HOUR else f"h/{step}"  # as the parser reads it: in lower case
            minutes = values_of(MINUTE, read_field(MINUTE, item), str(member.id))
            moved += 1
            offset_s = member.jitter_offset_s
            self._move(
                after,
                member,
                self._nominal(member, spec),
                offset_s,
                self._cron_fires(replace(spec, minute=minutes)),
                offset_s,
            )
        return after, moved

    def jittered(self, jitter_s: int) -> tuple[list[int], int]:
        """Fires of each second with this jitter, and how many schedules that changes."""
        after = list(self._before)
        for member in self._members:
            spec = self._specs[member.spec_id]
            fires = self._nominal(member, spec)
            self._move(after, member, fires, member.jitter_offset_s, fires, jitter_of(member, spec, jitter_s))
        return after, len(self._members)

    def _move(
        self, after: list[int], member: Member, old: Sequence[int], old_s: int, new: Sequence[int], new_s: int
    ) -> None:
        for second in self._seconds(member, old, old_s, member.from_s):
            after[second] -= 1
        for second in self._seconds(member, new, new_s, max(member.from_s, self._now_s)):
            after[second] += 1

    def _seconds(self, member: Member, fires: Sequence[int], offset_s: int, from_s: float) -> Iterator[int]:
        start_s, length_s = self._region.start_s, self._region.minutes * 60
        for at_s in fires:
            second = at_s + offset_s - start_s
            if 0 <= second < length_s and at_s >= from_s and (member.until_s is None or at_s < member.until_s):
                yield second

    def _nominal(self, member: Member, spec: Spec) -> Sequence[int]:
        """Nominal instants that may be due in the region."""
        if isinstance(spec, CronSpec):
            return self._cron_fires(spec)
        phase = member.due_phase - member.jitter_offset_s
        return fires_between(spec, self._region.start_s - LONGEST_JITTER_S, self._region.end_s, phase)

    def _fires_of_cron(self, spec: CronSpec) -> list[int]:
        return fires_between(spec, self._region.start_s - LONGEST_JITTER_S, self._region.end_s)


def jitter_of(member: Member, spec: Spec, jitter_s: int) -> int:
    """The offset that the trigger of `schedules` draws from the id: below the period, 0 for none."""
    drawn = int(md5(str(member.id).encode(), usedforsecurity=False).hexdigest()[:8], 16) % (jitter_s + 1)
    return drawn % spec.every_s if isinstance(spec, EverySpec) else drawn
