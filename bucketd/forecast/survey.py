"""The forecast, as an operation: two passes over the table of schedules, a stretch of pages at a time.

The first pass gives the curve of the whole, and who is large. The second gives the curves of the large ones, who makes the peaks, and
the seconds around the highest peak, with its schedules one by one if they are few. Writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor
from time import monotonic
from uuid import UUID

from bucketd.forecast.curve import curve
from bucketd.forecast.peaks import Heaviest, find_peaks
from bucketd.forecast.timetable import HOUR, Timetable, Window
from bucketd.store import forecast as store
from bucketd.store import schedules
from bucketd.store.forecast import Asked, Extent, Group, Member, Scope, Stretch
from bucketd.store.operation import Operation
from bucketd.timing import Spec, load_rule

ONE_BY_ONE = 50_000  # fires of a peak up to which a change is computed for each schedule
_BLOCK = 1_000  # specs between two reports of progress
# Pages of a stretch (8 KiB: some 25 schedules each), and how long its statements should take together: less than the time-out of one.
_FIRST_PAGES, _LEAST_PAGES, _MOST_PAGES = 256, 16, 8_192
_STRETCH_S = 2.0
_UNIT_S = 60


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, checked. by: tenant, target or partition; top: how many of them; jitter_s: what to try on the peak."""

    hours: int
    by: str
    scope: Scope
    top: int
    jitter_s: int
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Who makes the fires of one minute, and in which second of it they are due."""

    seconds: Counter[int] = field(default_factory=Counter)
    specs: Heaviest[int] = field(default_factory=Heaviest)
    tenants: Heaviest[str] = field(default_factory=Heaviest)
    targets: Heaviest[int] = field(default_factory=Heaviest)


@dataclass(slots=True)
class Findings:
    """All that was found. `places`: the peaks, as minutes of the window; `shares`: theirs, in the same order.

    `region`: what fires around the highest peak, and `counts` of its schedules by second; `members`: those of the peak, if they are few.
    """

    now_s: float
    table: Timetable
    specs: dict[int, Spec] = field(default_factory=dict)
    jitters: dict[int, int] = field(default_factory=dict)
    unreadable: int = 0
    minutes: list[int] = field(default_factory=list)
    dims: Heaviest[str] = field(default_factory=Heaviest)
    parts: dict[str, Counter[Group]] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)
    region: Timetable | None = None
    counts: Counter[Group] = field(default_factory=Counter)
    members: dict[UUID, Member] | None = None


class Pages:
    """The table in stretches, each as long as its predecessors' time says, so that no statement meets its time-out.

    part: 0 for the specs, 1 and 2 for the passes: of the three thirds of progress that it is.
    """

    def __init__(self, extent: Extent, progress: Callable[[int, int], None], part: int) -> None:
        self._extent = extent
        self._progress = progress
        self._part = part

    def __iter__(self) -> Iterator[Stretch]:
        total, first, size = self._extent.pages, 0, _FIRST_PAGES
        while first < total:
            begun_s = monotonic()
            yield self._extent.stretch(first, size)
            first = min(first + size, total)
            self._progress(self._part * total + first, 3 * total)
            # By one slow stretch down to an eighth, by a fast one up to the double.
            factor = _STRETCH_S / max(monotonic() - begun_s, 0.001)
            size = max(_LEAST_PAGES, min(_MOST_PAGES, int(size * min(2.0, max(0.125, factor)))))


def survey(question: Question) -> Operation[Findings]:
    """What falls due in the coming hours. The work grows with schedules, the memory with specs and minutes."""
    now_s = yield from schedules.now_s()
    found = Findings(now_s, Timetable(Window((floor(now_s) // 60 + 1) * 60, question.hours * 60)))
    progress = question.progress or (lambda done, total: None)
    extent = yield from store.extent(question.scope)
    rows = yield from store.specs(question.scope.tenant if extent.few else None)
    for place, row in enumerate(rows, 1):
        try:
            spec = load_rule(row.rule)
            found.table.add(row.spec_id, spec, row.max_jitter_s)
            found.specs[row.spec_id], found.jitters[row.spec_id] = spec, row.max_jitter_s
        except (
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
        ):  # one that cannot be read or computed: the rest go on
            found.unreadable += 1
        if place % _BLOCK == 0:
            progress(place, len(rows) * 3)
    yield from _first_pass(question, found, Pages(extent, progress, 1))
    if found.places:
        found.region = _region(found)
        yield from _second_pass(question, found, Pages(extent, progress, 2))
    return found


def _first_pass(question: Question, found: Findings, pages: Pages) -> Operation[None]:
    window, asked = found.table.window, found.table.asked()
    whole: Counter[Group] = Counter()
    for stretch in pages:
        counts, fires = yield from store.groups(question.scope, stretch, asked, *window, _UNIT_S, question.by)
        whole.update(counts)
        found.dims.add(fires)
    found.minutes = curve(whole, found.table.patterns, _UNIT_S, window.minutes)
    found.places = find_peaks(found.minutes)
    found.shares = [Shares() for _ in found.places]


def _second_pass(question: Question, found: Findings, pages: Pages) -> Operation[None]:
    assert found.region is not None
    scope, window, asked = question.scope, found.table.window, found.table.asked()
    # By fires that may be a little off where jitter crosses the window's edges: so some more than are wanted.
    large = [name for name, _ in found.dims.top(2 * question.top + 20)]
    around, minutes = found.region.asked(), found.table.asked_minutes(found.places)
    highest = found.table.asked_minutes(found.places[:1])
    found.members = {} if found.minutes[found.places[0]] <= ONE_BY_ONE else None
    for stretch in pages:
        parts, _ = yield from store.groups(scope, stretch, asked, *window, _UNIT_S, question.by, large)
        for group, count in parts.items():
            found.parts.setdefault(group.part or "", Counter())[group] += count
        counts, _ = yield from store.groups(scope, stretch, around, *found.region.window, 1)
        found.counts.update(counts)
        yield from _share(scope, stretch, minutes, found.shares)
        if found.members is not None:
            members = yield from store.members(scope, stretch, highest)
            found.members |= {member.id: member for member in members}


def _share(scope: Scope, stretch: Stretch, minutes: Asked, shares: Sequence[Shares]) -> Operation[None]:
    counted = yield from store.peaks(scope, stretch, minutes)
    for peak, counts in counted.items():
        shares[peak].seconds.update(counts.seconds)
        shares[peak].specs.add(counts.specs)
        shares[peak].tenants.add(counts.tenants)
        shares[peak].targets.add(counts.targets)


def _region(found: Findings) -> Timetable:
    """The minutes into which H may move a fire of the highest peak: up to an hour either way, none before the window."""
    window = found.table.window
    peak_s = window.start_s + found.places[0] * 60
    start_s = max(window.start_s, peak_s - (HOUR - 1) * 60)
    table = Timetable(Window(start_s, (peak_s - start_s) // 60 + HOUR), before=2 * HOUR, after=HOUR)
    for spec_id, spec in found.specs.items():
        table.add(spec_id, spec, found.jitters[spec_id])
    return table
