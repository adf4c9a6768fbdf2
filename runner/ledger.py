"""Which run holds a place under which caps, and what is to be reported of it. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bucketd.runner.run import Run
from bucketd.store.limits import Limit


class Ledger:
    """Places this runner holds, by cap and by run. Bounded by the runs that it has begun."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # by the name of a cap; 0: to be given back by the next report
        self._caps: dict[str, Limit] = {}  # as last seen: a cap may change while runs hold it
        self._runs: dict[tuple[int, bytes, bytes], tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def begin(self, runs: Sequence[Run], limits: tuple[Limit, ...]) -> None:
        """Each of these runs holds a place now."""
        caps = tuple(limit for limit in limits if not limit.is_rate)
        names = tuple(cap.name for cap in caps)
        for cap in caps:
            self._caps[cap.name] = cap
            self._held[cap.name] = self._held.get(cap.name, 0) + len(runs)
        for run in runs if names else ():
            self._runs[_key(run)] = names

    def end(self, runs: Iterable[Run]) -> bool:
        """These runs hold no place any more; whether any of them did. A repeat changes nothing."""
        found = False
        for run in runs if self._runs else ():
            for name in self._runs.pop(_key(run), ()):
                self._held[name] -= 1
                found = True
        return found

    def held(self, asked: Iterable[Limit]) -> dict[Limit, int]:
        """What to report: all that is held or was since the last report, and what is asked for or looked at."""
        current = {limit.name: limit for limit in asked}
        named = {name: cap for name, cap in self._caps.items() if name in self._held} | current
        return {limit: self._held.get(name, 0) for name, limit in named.items()}

    def reported(self, held: Mapping[Limit, int]) -> None:
        """That report was taken: caps of which nothing was held then or is now are done with."""
        for limit, places in held.items():
            if not places and self._held.get(limit.name) == 0:
                del self._held[limit.name], self._caps[limit.name]


def _key(run: Run) -> tuple[int, bytes, bytes]:
    return run.claim.number, run.schedule_id, run.at
