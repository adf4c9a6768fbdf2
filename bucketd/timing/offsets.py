"""The UTC offsets of one zone as stretches of integers, so that local time and UTC differ by one addition.

The time line is cut into chunks of 2**21 s (24.3 days), computed when first asked for. A chunk holds the stretches of
constant offset that touch it. A change of offset up to 36 h outside the chunk still bounds its stretches: the largest
jump ever is 24 h, so whatever a change can disturb is seen from inside.
"""

from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from bucketd.timing.zones import zone

DAY_S = 86_400
FIRST_S = -62_135_596_800  # 0001-01-01T00:00:00Z
LAST_S = 253_402_300_799  # 9999-12-31T23:59:59Z

_CHUNK_BITS = 21
_MARGIN_S = 1 << 17
# Between two probes at most one change is found. No zone has two changes closer together than 167 h (a test looks).
_PROBE_S = 1 << 18
# Chunks kept per zone: far more than live schedules touch; a scan over centuries must not fill the memory.
_CHUNKS_KEPT = 4_096


class Stretch(NamedTuple):
    """UTC instants lo_s <= t < hi_s with one offset; in safe_lo_s <= t < safe_hi_s each wall time shown exists once,
    and no missing one lands there."""

    lo_s: int
    hi_s: int
    offset_s: int
    safe_lo_s: int
    safe_hi_s: int
    before_s: int  # offset just before lo_s; equal to offset_s if lo_s is only the edge of the chunk
    after_s: int  # offset from hi_s on; likewise


class ZoneOffsets:
    """Offsets of one zone; grows lazily, safe to share between threads (a lost race computes a chunk twice)."""

    __slots__ = ("_chunks", "_epoch", "_zone")

    def __init__(self, info: ZoneInfo) -> None:
        self._zone = info
        self._epoch = datetime(1970, 1, 1, tzinfo=info)
        self._chunks: dict[int, tuple[Stretch, ...]] = {}

    def at(self, utc_s: int) -> Stretch:
        """The stretch that holds `utc_s`. Beyond the years 1..9999 the offset of their edge goes on."""
        chunk = self._chunks.get(utc_s >> _CHUNK_BITS)
        if chunk is None:
            chunk = self._build(utc_s >> _CHUNK_BITS)
        for stretch in chunk:
            if utc_s < stretch[1]:
                return stretch
        raise AssertionError("a chunk covers all of its instants")

    def _build(self, number: int) -> tuple[Stretch, ...]:
        start, end = number << _CHUNK_BITS, (number + 1) << _CHUNK_BITS
        changes = self._changes(start - _MARGIN_S, end + _MARGIN_S)
        inside = [change for change in changes if start < change[0] < end]
        earlier = [change for change in changes if change[0] <= start]
        later = [change for change in changes if change[0] >= end]
        offset = self._probe(start)
        edges = [earlier[-1] if earlier else (start, offset, offset), *inside]
        last = edges[-1][2]
        edges.append(later[0] if later else (end, last, last))
        chunk = tuple(_stretch(left, right) for left, right in pairwise(edges))
        if len(self._chunks) >= _CHUNKS_KEPT:
            self._chunks.clear()
        self._chunks[number] = chunk
        return chunk

    def _changes(self, start_s: int, end_s: int) -> list[tuple[int, int, int]]:
        """(instant, offset before, offset from there on) of each change in (start_s, end_s], ascending."""
        found = []
        old = self._probe(start_s)
        for left in range(start_s, end_s, _PROBE_S):
            new = self._probe(left + _PROBE_S)
            if new != old:
                found.append((self._first_with(left, left + _PROBE_S, new), old, new))
                old = new
        return found

    def _first_with(self, low_s: int, high_s: int, offset_s: int) -> int:
        while high_s - low_s > 1:
            middle = (low_s + high_s) >> 1
            if self._probe(middle) == offset_s:
                high_s = middle
            else:
                low_s = middle
        return high_s

    def _probe(self, utc_s: int) -> int:
        # Two days off the edges of the calendar, where datetime would overflow; no zone changes there.
        utc_s = min(max(utc_s, FIRST_S + 2 * DAY_S), LAST_S - 2 * DAY_S)
        # fromutc takes UTC in the fields of a datetime that carries the zone itself; arithmetic with one zone is naive.
        utc = self._epoch + timedelta(seconds=utc_s)
        apart = self._zone.fromutc(utc) - utc
        return apart.days * DAY_S + apart.seconds


def _stretch(left: tuple[int, int, int], right: tuple[int, int, int]) -> Stretch:
    lo_s, before_s, offset_s = left
    hi_s, _, after_s = right
    # After a fold the first minutes are second passes; after a gap shifted times land in the first minutes.
    # Before a fold the last minutes are first passes of minutes to come.
    safe_lo_s = lo_s + abs(offset_s - before_s)
    safe_hi_s = hi_s - max(0, offset_s - after_s)
    return Stretch(lo_s, hi_s, offset_s, safe_lo_s, safe_hi_s, before_s, after_s)


@cache
def offsets_of(name: str) -> ZoneOffsets:
    """The shared table of the zone called `name`; raises as `zone` does."""
    return ZoneOffsets(zone(name))
