"""When a target's circuit breaker opens, and for how long. Pure: no clock, no I/O.

An answer of any kind shows that the target lives. So an answer other than 5xx is no failure: other 4xx are the fault of the run, and
by 429 a target asks for less, which its Retry-After and its caps see to; a breaker would turn less into nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Rules:
    """When to open and how to come back. Times in seconds."""

    window_s: int = 10  # failures of this time count ..
    least_calls: int = 20  # .. if there were so many calls ..
    failing_share: float = 0.5  # .. and so large a share of them failed
    silent_in_row: int = 5  # or: calls without any answer, none answered between
    doubt_s: float = 1.0  # silence is looked at again after this: is it the target, or this runner's own network?
    pause_s: float = 30.0  # to the first probe; doubles with each opening in a row
    longest_pause_s: float = 600.0
    probes: int = 3  # held runs that are let through at once
    idle_s: float = 120.0  # a breaker without a run to probe with closes after this: what fell due has its row by then
    look_s: float = 5.0  # between looks for such a run
    remember_s: float = 600.0  # one that opens again within this time continues the count of openings
    poll_s: float = 1.0  # between looks at the rows of breakers
    own_hosts: int = 5  # with so many hosts called, and ..
    own_share: float = 0.9  # .. so large a share of them silent, it is this runner that is cut off
    stalled_s: float = 3.0  # a loop this late has let its own calls time out

    def pause(self, openings: int, draw: float) -> float:
        """Seconds to the next probe after so many openings in a row; `draw` in [0, 1) spreads targets that failed together."""
        longest = min(self.longest_pause_s, self.pause_s * 2.0 ** min(openings - 1, 60))
        return longest * (0.75 + draw / 4)


class Outcome(Enum):
    """What a call says about its target."""

    ANSWERED = auto()
    FAILED = auto()  # 5xx
    SILENT = auto()  # no answer: not connected, cut, timed out


def outcome_of(status: int | None) -> Outcome:
    """Outcome of a call that could be sent; `status` None: no answer."""
    if status is None:
        return Outcome.SILENT
    return Outcome.FAILED if 500 <= status < 600 else Outcome.ANSWERED


class Window:
    """Calls of one target in the last `window_s` seconds, whole seconds a cell; constant work a call."""

    __slots__ = (
        "_calls",
        "_failed",
        "_rules",
        "_second",
        "_silent",
        "calls",
        "failed",
        "last_s",
        "row",
        "row_since_s",
        "silent",
    )

    def __init__(self, rules: Rules, now_s: float) -> None:
        self._rules = rules
        self._second = int(now_s)
        self._calls = [0] * rules.window_s
        self._failed = [0] * rules.window_s
        self._silent = [0] * rules.window_s
        self.calls = self.failed = self.silent = 0  # silent ones are among the failed
        self.row = 0  # silent calls since the last answer, however long that takes
        self.row_since_s = self.last_s = now_s

    def add(self, outcome: Outcome, now_s: float) -> str | None:
        """Counts a call that ended now; why the breaker should open, if it should."""
        cell = self._turn(int(now_s))
        self._calls[cell] += 1
        self.calls += 1
        self.last_s = now_s
        if outcome is not Outcome.SILENT:
            self.row = 0
            if outcome is Outcome.ANSWERED:
                return None
        else:
            if not self.row:
                self.row_since_s = now_s
            self.row += 1
            self._silent[cell] += 1
            self.silent += 1
        self._failed[cell] += 1
        self.failed += 1
        return self._verdict()

    def _verdict(self) -> str | None:
        rules = self._rules
        if self.row >= rules.silent_in_row:
            return f"{self.row} calls in a row without an answer"
        if self.calls >= rules.least_calls and self.failed >= rules.failing_share * self.calls:
            return f"{self.failed} of {self.calls} calls within {rules.window_s} s failed"
        return None

    def _turn(self, second: int) -> int:
        """Empties the cells that have left the window; the cell of this second."""
        size = self._rules.window_s
        for passed in range(max(self._second, second - size) + 1, second + 1):
            cell = passed % size
            self.calls -= self._calls[cell]
            self.failed -= self._failed[cell]
            self.silent -= self._silent[cell]
            self._calls[cell] = self._failed[cell] = self._silent[cell] = 0
        self._second = max(self._second, second)
        return self._second % size

    @property
    def by_silence(self) -> bool:
        """Whether silence is most of what failed: then the fault may be ours."""
        return 2 * self.silent > self.failed or self.row >= self._rules.silent_in_row


def cut_off(hosts: Iterable[tuple[str, bool]], rules: Rules) -> bool:
    """Whether nearly all hosts are silent, of (host, whether a target of it is silent): then it is the caller who is cut off.

    A host with one target that answers is not silent.
    """
    silent: dict[str, bool] = {}
    for host, is_silent in hosts:
        silent[host] = silent.get(host, True) and is_silent
    return len(silent) >= rules.own_hosts and sum(silent.values()) >= rules.own_share * len(silent)
