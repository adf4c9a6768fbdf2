"""Which minutes are peaks, and which names are the largest of very many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Generic, TypeVar

MOST = 5
FACTOR = 2  # a minute below so many medians is none
APART = 5  # minutes: what stands nearer to a higher one belongs to it

K = TypeVar("K", int, str)


def find_peaks(minutes: Sequence[int]) -> list[int]:
    """Places of the highest minutes, highest first; the highest of all counts as one in any case."""
    least = FACTOR * median(minutes)
    found: list[int] = []
    for place in sorted(range(len(minutes)), key=lambda place: (-minutes[place], place)):
        if not minutes[place] or len(found) == MOST or (found and minutes[place] < least):
            break
        if all(abs(place - higher) > APART for higher in found):
            found.append(place)
    return found


class Heaviest(Generic[K]):
    """Counts by name in bounded memory: beyond `most` names the smaller half is forgotten, and with it some of the small counts."""

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._counts: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, counts: Mapping[K, int]) -> None:
        """Adds counts of names."""
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        if len(self._counts) > self._most:
            self._counts = dict(self.top(self._most // 2))

    def top(self, most: int) -> list[tuple[K, int]]:
        """The largest; equal ones by name."""
        return largest(self._counts.items(), most)


def largest(counts: Iterable[tuple[K, int]], most: int) -> list[tuple[K, int]]:
    """The `most` largest counts; equal ones by name."""
    return sorted(counts, key=lambda item: (-item[1], item[0]))[:most]
