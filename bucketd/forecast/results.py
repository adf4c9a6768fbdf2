"""What a forecast says: frozen values, instants in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

How: TypeAlias = Literal["H", "jitter"]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a peak: a tenant's or a target's name, or a spec as its author typed it; and its fires in that minute."""

    name: str
    fires: int


@dataclass(frozen=True, slots=True)
class Peak:
    """A minute with many fires, the second in it that has most, and who makes it: the three largest of each kind.

    `times_median`: fires over the median minute's; None if the median is 0.
    """

    at: datetime
    fires: int
    times_median: float | None
    second: datetime
    second_fires: int
    specs: tuple[Share, ...]
    tenants: tuple[Share, ...]
    targets: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Fires of one tenant, target or partition in the window, and its highest minute."""

    name: str
    fires: int
    peak_at: datetime
    peak_fires: int


@dataclass(frozen=True, slots=True)
class Spread:
    """What the highest peak would become: the minutes of up to an hour before and after it, if its schedules changed.

    `how`: "H" in the minute field (of crons that fire at one minute, or at equal steps; the others stay), or "jitter" of `jitter_s`
    (in place of the one they have). `schedules`: how many would change. `exact`: computed schedule by schedule with the rules by which
    H and jitter are drawn; else expected on average, for there are too many. `minutes`: fires a minute from `start` on, with everything
    else that fires there; `at`, `fires` the highest of them, `second_fires` of the highest second.
    """

    how: How
    jitter_s: int | None
    exact: bool
    schedules: int
    at: datetime
    fires: int
    second_fires: int
    start: datetime
    minutes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Fires due in [start, end), which begins at the first whole minute after `now`.

    `minutes`: fires of each minute. `median`: of them. `peaks`: highest first. `loads`: the largest by fires of the asked kind, `by`;
    `others`, `other_fires`: what is not among them (others stops counting at 200,000). `spreads`: of the highest peak.
    `unreadable_specs`: rules that could not be read or computed; their schedules are not counted.
    """

    now: datetime
    start: datetime
    end: datetime
    minutes: tuple[int, ...]
    fires: int
    median: float
    peaks: tuple[Peak, ...]
    by: str
    loads: tuple[Load, ...]
    others: int
    other_fires: int
    spreads: tuple[Spread, ...]
    unreadable_specs: int
