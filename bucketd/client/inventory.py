"""The backlog as people look at it: what waits, what backfills and settling may still add to it. From checked arguments to a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

from bucketd.client import checks
from bucketd.client.remainder import at_most
from bucketd.errors import InvalidInput, NotFound
from bucketd.store import specs, targets, waiting
from bucketd.store.operation import Operation
from bucketd.store.waiting import Counted, Filter, Open, Share
from bucketd.timing import Spec, TimingError, load_rule

Day = tuple[datetime, datetime]
SCHEDULES = 1_000_000  # that are looked at for the estimates
RULES = 5_000  # specs that are read for them, those of the most schedules first
LONGEST_JITTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Runs that wait: of a tenant and target, of a value of a label, or of all (then those are None), by what they wait for.

    `held`: for a release. `deferred`: live work that a runner takes next. `background`: catch-up and backfill, behind it. `retrying`:
    for their next attempt. `target` is None if it was deleted; `label` if the schedule has none. `oldest`: the first scheduled_at.
    """

    tenant: str | None = None
    target: str | None = None
    label: str | None = None
    held: int = 0
    deferred: int = 0
    background: int = 0
    retrying: int = 0
    oldest: datetime | None = None

    @property
    def runs(self) -> int:
        """All kinds together."""
        return self.held + self.deferred + self.background + self.retrying

    def plus(self, counted: Counted) -> Waiting:
        """With some more."""
        oldest = counted.oldest if self.oldest is None else min(self.oldest, counted.oldest)
        return replace(self, oldest=oldest, **{counted.kind: getattr(self, counted.kind) + counted.runs})


@dataclass(frozen=True, slots=True)
class OpenBackfill:
    """A backfill that still makes runs: `at_most` so many more (occurrences that have a run already are counted too)."""

    id: int
    tenant: str | None
    name: str | None
    target: str | None
    labels: Mapping[str, str]
    from_at: datetime
    until_at: datetime
    runs_created: int
    at_most: int


@dataclass(frozen=True, slots=True)
class OwedWindows:
    """Windows that nobody watched and settling still has to judge: `at_most` so many runs will come of them."""

    windows: int
    from_at: datetime
    until_at: datetime
    at_most: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits. `groups`: the largest first; `groups_left`: how many more there are. `more`: counting stopped at the bound.

    `partial`: for the estimates of backfills and owed windows not all schedules were looked at. Fires in Redis are not in it: they are
    no runs yet.
    """

    now: datetime
    total: Waiting
    groups: tuple[Waiting, ...]
    groups_left: int
    more: bool
    backfills: tuple[OpenBackfill, ...]
    owed: OwedWindows | None
    partial: bool


class Wanted(NamedTuple):
    """Which runs, checked but for the target's existence."""

    tenant: str | None
    target: str | None
    labels: str | None
    before: datetime | None = None

    def filter(self) -> Operation[Filter]:
        """As the store takes it. Raises NotFound (target)."""
        target_id = None
        if self.target is not None:
            target_id = (yield from targets.ids([self.target])).get(self.target)
            if target_id is None:
                raise NotFound(f"expected the name of a target, got {self.target!r}, which does not exist")
        return Filter(self.tenant, target_id, self.labels, self.before)


def wanted(tenant: str | None, target: str | None, labels: Mapping[str, str] | None) -> Wanted:
    """Checks a filter. Raises InvalidInput."""
    return Wanted(
        None if tenant is None else checks.name(tenant, "tenant"),
        None if target is None else checks.name(target, "target"),
        checks.labels(labels) if labels else None,
    )


class Inventory:
    """Counts day by day; each method is one transaction of the caller's."""

    def __init__(self, by: str, runs: Wanted, bound: int, top: int) -> None:
        self.label = _label(by)
        self._runs, self._left = runs, checks.integer(bound, "bound", 1, 100_000_000)
        self._top = checks.integer(top, "top", 1, 10_000)
        self._groups: dict[tuple[str | None, str | None, str | None], Waiting] = {}
        self._total = Waiting()
        self._filter = Filter()
        self._now: datetime | None = None

    @property
    def full(self) -> bool:
        """Whether counting has come to its bound."""
        return self._left <= 0

    @property
    def runs(self) -> int:
        """Runs counted so far."""
        return self._total.runs

    def begin(self) -> Operation[list[Day]]:
        """The days to count. Raises NotFound (target)."""
        self._filter = yield from self._runs.filter()
        days, self._now = yield from waiting.days()
        return days

    def count(self, day: Day) -> Operation[list[Counted]]:
        """What of a day waits."""
        return waiting.count(day, self._filter, self.label, self._left)

    def add(self, counts: Sequence[Counted]) -> None:
        """Enters counts."""
        for counted in counts:
            key = counted.tenant, counted.target, counted.label
            self._groups[key] = self._groups.get(key, Waiting(*key)).plus(counted)
            self._total = self._total.plus(counted)
            self._left -= counted.runs

    def finish(self) -> Operation[Backlog]:
        """The whole, with what is still to come."""
        assert self._now is not None
        backfills, owed, partial = yield from _to_come()
        groups = sorted(self._groups.values(), key=lambda group: -group.runs)
        return Backlog(
            self._now, self._total, tuple(groups[: self._top]), max(0, len(groups) - self._top), self.full, backfills, owed, partial
        )  # fmt: skip


def _label(by: str) -> str | None:
    if by == "target":
        return None
    word, _, key = by.partition("=") if isinstance(by, str) else ("", "", "")
    if word != "label" or not key:
        raise InvalidInput(f"expected by to be target, or label=KEY, got {by!r}", field="by")
    return checks.name(key, "by")


def _to_come() -> Operation[tuple[tuple[OpenBackfill, ...], OwedWindows | None, bool]]:
    """Open backfills, owed windows, and whether the bound on schedules cut the estimates short."""
    found = yield from waiting.unfinished()
    left = SCHEDULES
    backfills = []
    for one in (one for one in found if one.kind == "user"):
        low_s, high_s = ceil(one.from_at.timestamp()), ceil(one.until_at.timestamp())
        shares = (yield from waiting.asked(one, low_s, high_s, left)) if left else []
        left -= sum(share.schedules for share in shares)
        most = at_most(shares, (yield from _specs(shares)), low_s, high_s)
        backfills.append(
            OpenBackfill(one.id, one.tenant, one.name, one.target, one.labels, one.from_at, one.until_at, one.runs_created, most)
        )  # fmt: skip
    windows = [one for one in found if one.kind == "settle"]
    owed = None
    if windows:
        total = 0
        for cluster in _overlapping(windows):
            # Windows are of `due`; the nominal instant lies up to the longest jitter before it.
            low_s = ceil((min(one.from_at for one in cluster) - LONGEST_JITTER).timestamp())
            high_s = ceil(max(one.until_at for one in cluster).timestamp()) + 1
            shares = (yield from waiting.owed(cluster, low_s, high_s, left)) if left else []
            left -= sum(share.schedules for share in shares)
            total += at_most(shares, (yield from _specs(shares)), low_s, high_s)
        owed = OwedWindows(
            len(windows), min(one.from_at for one in windows), max(one.until_at for one in windows), total
        )
    return tuple(backfills), owed, left <= 0 or len(found) == waiting.OPEN_MAX


def _overlapping(windows: Sequence[Open]) -> list[list[Open]]:
    """Windows of one outage together: those of the partitions differ by seconds."""
    clusters: list[list[Open]] = []
    end: datetime | None = None
    for one in sorted(windows, key=lambda one: one.from_at):
        if end is None or one.from_at > end:
            clusters.append([])
            end = one.until_at
        clusters[-1].append(one)
        end = max(end, one.until_at)
    return clusters


def _specs(shares: Sequence[Share]) -> Operation[dict[int, Spec]]:
    """The crons among the specs; a rule that cannot be read is left out."""
    crons = {share.spec_id: share.schedules for share in shares if share.spec_kind == "cron"}
    ids = sorted(crons, key=crons.__getitem__, reverse=True)[:RULES]
    found = {}
    for spec_id, rule in ((yield from specs.rules(ids)) if ids else {}).items():
        try:
            found[spec_id] = load_rule(rule)
        except TimingError:
            continue
    return found
