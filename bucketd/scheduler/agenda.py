"""Which crons fire when: each is computed once a fire, not once a minute, and only as far as it was asked for.

A cron waits at the minute of its next fire. So a minute costs what fires in it, however many crons are known; the few
minutes computed last are kept, because settling asks for them again. No clock, no I/O; not thread-safe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain

from bucketd.scheduler.due import WholeDue
from bucketd.timing import CronSpec, fires_between, next_fire, previous_fire

KEPT_MINUTES = 10  # a horizon, and the five minutes that settling may look back
KEPT_S = KEPT_MINUTES * 60

Failed = Callable[[int, Exception], None]  # called with a spec whose computation raised; it is dropped then
Waiting = tuple[int, CronSpec, int, int | None]  # spec id, spec, next fire, the one before that


class Agenda:
    """Crons without jitter, by the minute."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._specs: dict[int, CronSpec] = {}
        self._waiting: defaultdict[int, list[Waiting]] = defaultdict(list)  # by minute, at or after the front
        self._front: int | None = None  # minutes below have been computed
        self._minutes: dict[int, list[WholeDue]] = {}
        self._dropped: set[int] = set()  # these may still stand in minutes

    def enter(self, spec_id: int, spec: CronSpec) -> None:
        """Adds a cron, also to the minutes that were computed without it."""
        if spec_id in self._dropped:
            self._purge()
        self._specs[spec_id] = spec
        if self._front is None:
            return
        try:
            for minute, found in self._minutes.items():
                found += dues_between(spec_id, spec, minute * 60, minute * 60 + 60)
            self._wait(spec_id, spec, self._front)
        except Exception as error:
            self._failed(spec_id, error)

    def drop(self, spec_id: int) -> None:
        """Forgets a cron; nothing happens if it is not here."""
        if self._specs.pop(spec_id, None) is not None:
            self._dropped.add(spec_id)

    def minute(self, minute: int) -> list[WholeDue]:
        """The crons that fire in this minute since the epoch."""
        if self._front is None or minute > self._front + KEPT_MINUTES:
            self._restart(minute)
        while self._front is not None and self._front <= minute:
            self._advance(self._front)
        if minute not in self._minutes:  # before the first one ever asked for: rare, computed whole
            self._minutes[minute] = list(chain.from_iterable(self._fires_in(minute)))
        if self._dropped:
            self._purge()
        return self._minutes[minute]

    def _fires_in(self, minute: int) -> list[list[WholeDue]]:
        found = []
        for spec_id, spec in list(self._specs.items()):
            try:
                found.append(dues_between(spec_id, spec, minute * 60, minute * 60 + 60))
            except Exception as error:
                self._failed(spec_id, error)
        return found

    def _restart(self, minute: int) -> None:
        self._waiting.clear()
        self._minutes.clear()
        self._front = minute
        for spec_id, spec in list(self._specs.items()):
            try:
                self._wait(spec_id, spec, minute)
            except Exception as error:
                self._failed(spec_id, error)

    def _wait(self, spec_id: int, spec: CronSpec, front: int) -> None:
        at = next_fire(spec, front * 60 - 1)
        if at is not None:
            earlier = previous_fire(spec, at)
            check_instants((earlier, at))
            self._waiting[at // 60].append((spec_id, spec, at, earlier))

    def _advance(self, minute: int) -> None:
        """Computes the minute at the front: of each cron that fires in it, the fire after."""
        end_s = minute * 60 + 60
        found: list[WholeDue] = []
        for spec_id, spec, first, before in self._waiting.pop(minute, ()):
            if self._specs.get(spec_id) is not spec:
                continue  # dropped since
            at: int | None = first
            earlier = before
            try:
                while at is not None and at < end_s:
                    later = next_fire(spec, at)
                    if type(later) is not int:
                        check_instants((later,))
                    previous_s = None if earlier is None else at - earlier
                    found.append(WholeDue(spec_id, at, previous_s, None if later is None else later - at))
                    earlier, at = at, later
            except Exception as error:
                self._failed(spec_id, error)
            else:
                if at is not None:
                    self._waiting[at // 60].append((spec_id, spec, at, earlier))
        self._minutes[minute] = found
        self._front = minute + 1
        for old in [kept for kept in self._minutes if kept <= minute - KEPT_MINUTES]:
            del self._minutes[old]

    def _purge(self) -> None:
        for minute, found in self._minutes.items():
            self._minutes[minute] = [due for due in found if due.spec_id not in self._dropped]
        self._dropped.clear()


class Trail:
    """The fires of one cron with jitter, as far back as its jitter reaches: what fired long ago may be due now."""

    def __init__(self, spec_id: int, spec: CronSpec) -> None:
        self._spec_id = spec_id
        self._spec = spec
        self._from_s = self._through_s = 0  # the fires in [from, through) are known
        self._fires: list[WholeDue] = []

    def between(self, start_s: int, end_s: int) -> list[WholeDue]:
        """Fires with start_s <= at < end_s. Raises what the computation raises."""
        if not self._from_s <= start_s <= self._through_s:
            self._from_s, self._fires = start_s - KEPT_S, []
            self._through_s = self._from_s
        if end_s > self._through_s:
            self._fires += dues_between(self._spec_id, self._spec, self._through_s, end_s)
            self._through_s = end_s
            if self._from_s < start_s - 2 * KEPT_S:  # not each time: that would copy the list for one fire less
                self._from_s = start_s - KEPT_S
                self._fires = [due for due in self._fires if due.at_s >= self._from_s]
        return [due for due in self._fires if start_s <= due.at_s < end_s]


def dues_between(spec_id: int, spec: CronSpec, start_s: int, end_s: int) -> list[WholeDue]:
    """Fires of a window with the distances to their neighbours."""
    ats = fires_between(spec, start_s, end_s)
    if not ats:
        return []
    line = [previous_fire(spec, ats[0]), *ats, next_fire(spec, ats[-1])]
    check_instants(line)
    return [
        WholeDue(spec_id, at, None if earlier is None else at - earlier, None if later is None else later - at)
        for earlier, at, later in zip(line, ats, line[2:], strict=False)
    ]


def check_instants(ats: Iterable[int | None]) -> None:
    """Raises TypeError for what no fire can carry: a rule written by other hands may be computable, and end in fractions."""
    for at in ats:
        if at is not None and type(at) is not int:
            raise TypeError(f"expected instants in whole seconds, got {at!r}")
