"""How long the cluster needs to recover: the longest that anything waited while nothing was wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.chaos.oracle import Expected
from tests.support.edit_model import Span
from tests.support.evidence import Call, Key, Row


class Wait(NamedTuple):
    """An occurrence between being due and being accounted for: begun, skipped, or counted."""

    key: Key
    at: float
    due_s: float
    accounted_s: float


def waits(expected: Mapping[Key, Expected], rows: Sequence[Row], calls: Sequence[Call], until_s: int) -> Iterator[Wait]:
    """Of every occurrence that had to come, of schedules whose runs need not wait for each other. What has no row is accounted for
    by the next row that counts some."""
    first: dict[tuple[Key, float], float] = {}
    for call in calls:
        first.setdefault((call.key, call.at), call.arrived)
    by_key: dict[Key, list[Row]] = {}
    for each in rows:
        by_key.setdefault(each.key, []).append(each)
    for key, one in expected.items():
        if one.overlap != "allow":
            continue
        have = {row.at: row for row in by_key.get(key, ())}
        counting = [row for row in by_key.get(key, ()) if row.missed]
        places = [row.at for row in counting]
        for at in one.sure:
            row: Row | None = have.get(at)
            if row is None:
                place = bisect_right(places, at)
                row = counting[place] if place < len(counting) else None
            due_s = one.due_s.get(at)
            if row is not None and due_s is not None and due_s < until_s:
                begun = [
                    time_s for time_s in (row.started, row.finished, first.get((key, row.at))) if time_s is not None
                ]
                if begun:
                    yield Wait(key, at, due_s, min(begun))


def in_peace(wait: Wait, faults: Sequence[Span]) -> float:
    """The longest piece of it, in seconds, in which no fault was active."""
    longest, from_s = 0.0, wait.due_s
    for fault in sorted(faults):
        if fault.begin_s >= wait.accounted_s:
            break
        if fault.end_s > from_s:
            longest = max(longest, fault.begin_s - from_s)
            from_s = fault.end_s
    return max(longest, wait.accounted_s - from_s)


def worst(found: Iterator[Wait], faults: Sequence[Span]) -> tuple[float, Wait | None]:
    """The longest of all, and which it was."""
    longest, which = 0.0, None
    for wait in found:
        if wait.accounted_s - wait.due_s > longest and (peace_s := in_peace(wait, faults)) > longest:
            longest, which = peace_s, wait
    return longest, which
