"""What this runner hears of its targets, and which of them it suspects. No I/O; `now_s` is monotonic seconds.

Silence may be our own: a network that is cut off, or a process that slept through its own time-outs. Nothing is held against a target
that then says nothing, for a breaker stops the calls of all runners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from bucketd.runner.breaker import Outcome, Rules, Window, cut_off
from bucketd.store.log import event, warn
from bucketd.store.runners import CallTarget


class Suspect(NamedTuple):
    """A target whose breaker is to open, why, and since when that is so. `doubted`: it may be this runner's own trouble."""

    name: str
    reason: str
    since_s: float
    doubted: bool


class _Seen(NamedTuple):
    name: str
    host: str
    window: Window


@dataclass(slots=True)
class _Closed:
    """A breaker that closed not long ago. `proven`: the target has answered since."""

    openings: int
    until_s: float
    proven: bool


class Health:
    """Of all targets that are called and whose breakers are not open; bounded by their number."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen: dict[int, _Seen] = {}
        self._closed: dict[int, _Closed] = {}
        self._is_cut_off = False
        self._asleep_until_s = float("inf")
        self._deaf_until_s = 0.0
        self.suspects: dict[int, Suspect] = {}

    def heard(self, target: CallTarget, outcome: Outcome, now_s: float) -> bool:
        """Counts a call that ended now; whether the target's breaker is to open at once."""
        if outcome is Outcome.SILENT and self._stalled(now_s):
            return False
        target_id = target.target_id
        seen = self._seen.get(target_id)
        if seen is None:
            seen = self._seen[target_id] = _Seen(target.name, urlsplit(target.url).netloc, Window(self._rules, now_s))
        reason = seen.window.add(outcome, now_s)
        if self._closed and (closed := self._closed.get(target_id)) and not closed.proven:
            closed.proven = outcome is Outcome.ANSWERED
            if not closed.proven:
                reason = "it failed again when its breaker had closed"
        if reason is None or target_id in self.suspects:
            return False
        doubted = outcome is Outcome.SILENT and seen.window.by_silence
        self.suspects[target_id] = Suspect(seen.name, reason, now_s, doubted)
        return not doubted

    def ripe(self, now_s: float) -> list[tuple[int, Suspect]]:
        """Suspects whose breakers are to open now. Those that have answered since, or that failed too long ago, are none any more."""
        found = []
        for target_id, suspect in list(self.suspects.items()):
            if now_s > suspect.since_s + self._rules.window_s:
                del self.suspects[target_id]  # Postgres was away: what was true then need not be true now
            elif not suspect.doubted:
                found.append((target_id, suspect))
            elif now_s >= suspect.since_s + self._rules.doubt_s:
                if self._is_silent_alone(target_id, now_s):
                    found.append((target_id, suspect))
                else:
                    del self.suspects[target_id]  # its next silent call makes it one again
        return found

    def _is_silent_alone(self, target_id: int, now_s: float) -> bool:
        seen = self._seen.get(target_id)
        return seen is not None and seen.window.row > 0 and not self._cut_off(seen.window.row_since_s, now_s)

    def _cut_off(self, since_s: float, now_s: float) -> bool:
        """Whether it is this runner: nearly all hosts are silent these seconds. One that answered before `since_s` does not count."""
        silent_s = now_s - self._rules.window_s
        seen = [one for one in self._seen.values() if one.window.last_s >= (silent_s if one.window.row else since_s)]
        found = cut_off(((one.host, one.window.row > 0) for one in seen), self._rules)
        if found and not self._is_cut_off:
            warn("runner_cut_off", targets=len(seen), note="nearly all hosts are silent: no breaker opens for that")
        elif self._is_cut_off and not found:
            event("runner_reconnected")
        self._is_cut_off = found
        return found

    def openings(self, target_id: int, now_s: float) -> int:
        """How often in a row the breaker of a target will have opened if it opens now."""
        closed = self._closed.get(target_id)
        return closed.openings + 1 if closed and now_s < closed.until_s else 1

    def opened(self, target_id: int) -> None:
        """The breaker of this target is open: what it did before says nothing any more."""
        self._seen.pop(target_id, None)
        self._closed.pop(target_id, None)
        self.suspects.pop(target_id, None)

    def closed(self, target_id: int, openings: int, now_s: float, *, proven: bool) -> None:
        """The breaker of this target closed after so many openings in a row. Unless that is proven to be right, its first failure tells."""
        self._closed[target_id] = _Closed(openings, now_s + self._rules.remember_s, proven)

    def sleeps(self, until_s: float) -> None:
        """The process is going to look again then. `wakes` must follow."""
        self._asleep_until_s = until_s

    def wakes(self, now_s: float) -> None:
        """The process looks again. If it is late it could not hear: what seems silent now says nothing yet."""
        if now_s > self._asleep_until_s + self._rules.stalled_s:
            self._deaf_until_s = now_s + self._rules.doubt_s
            warn("runner_stalled", late_s=now_s - self._asleep_until_s)
        self._asleep_until_s = float("inf")

    def _stalled(self, now_s: float) -> bool:
        return now_s > self._asleep_until_s + self._rules.stalled_s or now_s < self._deaf_until_s

    def forget(self, now_s: float) -> None:
        """What says nothing: closings of long ago, and targets that were not called for a while and were not silent."""
        for target_id in [target_id for target_id, closed in self._closed.items() if now_s >= closed.until_s]:
            del self._closed[target_id]
        idle_s = now_s - self._rules.window_s - 1
        for target_id in [
            id_ for id_, seen in self._seen.items() if seen.window.last_s < idle_s and not seen.window.row
        ]:
            del self._seen[target_id]
