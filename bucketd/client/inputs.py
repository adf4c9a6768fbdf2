"""What a schedule is put from, and the checks of a whole one. Pure: the database is asked elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from math import ceil
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from bucketd.client import checks
from bucketd.client.timings import At, Cron, Every, Timing, aware, expression_of, phase_of
from bucketd.errors import InvalidInput
from bucketd.store.schedules import Found, ScheduleRow
from bucketd.store.specs import SpecRow
from bucketd.timing import Spec, load_rule, next_fire, nth_fire

Overlap: TypeAlias = Literal["allow", "skip", "queue_one", "queue_all", "cancel_running"]
Misfire: TypeAlias = Literal["run_once", "skip", "catch_up"]
OVERLAPS = ("allow", "skip", "queue_one", "queue_all", "cancel_running")
MISFIRES = ("run_once", "skip", "catch_up")
CALL_MAX_S = 1_800


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInput:
    """One schedule of a bulk put; the fields mean what the arguments of `schedules.put` mean. Checked when it is put."""

    name: str
    timing: Timing
    target: str
    payload: Any = None
    tenant: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int | None = None
    max_attempts: int | None = None
    retry_base_s: float | None = None
    retry_cap_s: float | None = None
    overlap: Overlap | None = None
    misfire: Misfire = "run_once"
    misfire_threshold_s: int = 60
    deadline_s: int | None = None
    jitter_s: int = 0
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    paused: bool | None = None
    catch_up_window_s: int = 86_400
    catch_up_cap: int = 1_000
    max_runs: int | None = None
    exclude: Iterable[date] = ()
    calendars: Iterable[str] = ()


class Draft(NamedTuple):
    """A checked input; lacks what only the database knows: ids of the schedule, its target and its spec."""

    tenant: str
    name: str
    timing: Timing
    target: str
    payload: str
    labels: str
    timeout_s: int | None
    max_attempts: int | None
    retry_base_s: float | None
    retry_cap_s: float | None
    overlap: str
    misfire: str
    misfire_threshold_s: int
    deadline_s: int | None
    jitter_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    paused: bool | None
    catch_up_window_s: int
    catch_up_cap: int
    max_runs: int | None
    exclude: tuple[date, ...]
    calendars: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant, self.name

    @property
    def counts_from_now(self) -> bool:
        """Whether the clock matters for what is stored."""
        return self.max_runs is not None or isinstance(self.timing, At)

    def row(
        self, schedule_id: UUID, found: Found | None, target_id: int, spec: SpecRow, spec_id: int, now_s: float
    ) -> ScheduleRow:
        """The row to write. `found`: the schedule that it replaces; `now_s`: from when max_runs counts."""
        kept = None
        if found and isinstance(self.timing, Every) and found.every_s == self.timing.every_s:
            kept = found.phase
        phase = phase_of(self.timing, schedule_id, kept)
        ends_at = self.ends_at if self.max_runs is None else self._last_end(found, spec, spec_id, phase, now_s)
        return ScheduleRow(
            schedule_id, self.tenant, self.name, spec_id, phase, self.jitter_s, target_id,
            expression_of(self.timing), self.payload, self.timeout_s, self.max_attempts, self.retry_base_s, self.retry_cap_s,
            self.overlap, self.misfire, self.misfire_threshold_s, self.deadline_s, self.labels, self.paused, self.starts_at, ends_at,
            self.catch_up_window_s, self.catch_up_cap, self.max_runs, list(self.exclude), list(self.calendars),
        )  # fmt: skip

    def recounted(
        self, row: ScheduleRow, found: Found | None, spec: SpecRow, now_s: float, from_s: float
    ) -> ScheduleRow | None:
        """The row with an end counted from `from_s`, when its timing began to hold, if that left out occurrences that were counted.

        Between the clock that `row` was made with and its write a bulk put may take seconds.
        """
        if self.max_runs is None or from_s <= now_s or self._keeps_end(found, row.spec_id, row.phase):
            return None
        first_s = next_fire(load_rule(spec.rule), counts_from(now_s, self.starts_at) - 1, row.phase)
        if first_s is None or first_s >= from_s:
            return None
        return row._replace(ends_at=self._last_end(None, spec, row.spec_id, row.phase, from_s))

    def _last_end(self, found: Found | None, spec: SpecRow, spec_id: int, phase: int, now_s: float) -> datetime | None:
        """The end behind the last of `max_runs` occurrences; None if there are fewer. A put of the same again keeps the end it had."""
        assert self.max_runs is not None
        if found and self._keeps_end(found, spec_id, phase):
            return found.ends_at
        return end_of(load_rule(spec.rule), counts_from(now_s, self.starts_at), self.max_runs, phase)

    def _keeps_end(self, found: Found | None, spec_id: int, phase: int) -> bool:
        counted = spec_id, phase, self.max_runs, self.starts_at
        return found is not None and (found.spec_id, found.phase, found.max_runs, found.starts_at) == counted


def counts_from(now_s: float, starts_at: datetime | None) -> int:
    """The first second whose occurrence counts for max_runs, epoch seconds."""
    return ceil(max(now_s, starts_at.timestamp() if starts_at else now_s))


def end_of(spec: Spec, from_s: int, runs: int, phase: int) -> datetime | None:
    """The end just behind the last of so many occurrences at or after `from_s`; None if there are fewer."""
    last_s = nth_fire(spec, from_s - 1, runs, phase)
    return None if last_s is None else datetime.fromtimestamp(last_s + 1, UTC)


def default_overlap(timing: Timing) -> Overlap:
    """What a schedule that names no policy does while one of its runs goes on: it skips the occurrence.

    A one-shot allows it: it has no other occurrence that could be going on, and skipping its only one (for a run that somebody
    triggered by hand) would lose what it is there for.
    """
    return "allow" if isinstance(timing, At) else "skip"


def check(given: ScheduleInput) -> Draft:
    """Checks every field that can be checked without the database. Raises InvalidInput for the first that is wrong."""
    timing = given.timing
    if not isinstance(timing, Cron | Every | At):
        raise InvalidInput(
            f"expected a timing made by cron(), every() or at(), got {type(timing).__name__}", field="timing"
        )
    starts_at = None if given.starts_at is None else aware(given.starts_at, "starts_at")
    ends_at = None if given.ends_at is None else aware(given.ends_at, "ends_at")
    _check_interval(given, timing, starts_at, ends_at)
    timeout_s = None if given.timeout_s is None else checks.integer(given.timeout_s, "timeout_s", 1, 86_400)
    return Draft(
        tenant=checks.name(given.tenant, "tenant"),
        name=checks.name(given.name, "name"),
        timing=timing,
        target=checks.name(given.target, "target"),
        payload="null" if given.payload is None else checks.payload(given.payload),
        labels=checks.labels(given.labels),
        timeout_s=timeout_s,
        max_attempts=None if given.max_attempts is None else checks.attempts(given.max_attempts),
        retry_base_s=None if given.retry_base_s is None else checks.retry_base(given.retry_base_s),
        retry_cap_s=None if given.retry_cap_s is None else checks.retry_cap(given.retry_cap_s),
        overlap=default_overlap(timing) if given.overlap is None else checks.choice(given.overlap, "overlap", OVERLAPS),
        misfire=checks.choice(given.misfire, "misfire", MISFIRES),
        misfire_threshold_s=checks.integer(given.misfire_threshold_s, "misfire_threshold_s", 1),
        deadline_s=None if given.deadline_s is None else checks.integer(given.deadline_s, "deadline_s", 1),
        jitter_s=checks.integer(given.jitter_s, "jitter_s", 0, 3_600),
        starts_at=starts_at,
        ends_at=ends_at,
        paused=None if given.paused is None else checks.flag(given.paused, "paused"),
        catch_up_window_s=checks.integer(given.catch_up_window_s, "catch_up_window_s", 60, 604_800),
        catch_up_cap=checks.integer(given.catch_up_cap, "catch_up_cap", 1, 10_000),
        max_runs=_max_runs(given, timing),
        exclude=checks.dates(given.exclude, "exclude") if given.exclude else (),
        calendars=checks.names(given.calendars, "calendars") if given.calendars else (),
        warnings=_warnings(timing, timeout_s),
    )


def check_not_past(draft: Draft, found: Found | None, now_s: float) -> None:
    """Raises InvalidInput for a one-shot whose instant is gone, unless the schedule stands there with that instant already."""
    if isinstance(draft.timing, At):
        at_s = int(draft.timing.at.timestamp())
        if at_s <= now_s and not (found and found.kind == "at" and found.phase == at_s):
            raise InvalidInput(
                f"expected an instant in the future, got {expression_of(draft.timing)}, which would never fire;"
                " use schedules.trigger for a run right now",
                field="timing",
            )


def _max_runs(given: ScheduleInput, timing: Timing) -> int | None:
    if given.max_runs is None:
        return None
    if given.ends_at is not None:
        raise InvalidInput("expected max_runs or ends_at, got both; max_runs sets the end itself", field="max_runs")
    if isinstance(timing, At):
        raise InvalidInput(
            "expected max_runs with cron() or every(), got it with at(), which runs once", field="max_runs"
        )
    return checks.integer(given.max_runs, "max_runs", 1, 100_000)


def _check_interval(given: ScheduleInput, timing: Timing, starts_at: datetime | None, ends_at: datetime | None) -> None:
    if starts_at and ends_at and ends_at <= starts_at:
        raise InvalidInput(
            f"expected ends_at after starts_at, got {ends_at.isoformat()} and {starts_at.isoformat()}", field="ends_at"
        )
    if isinstance(timing, At):
        if given.exclude or given.calendars:
            raise InvalidInput(
                "expected exclude and calendars with cron() or every(), got them with at()", field="exclude"
            )
        if starts_at and timing.at < starts_at:
            raise InvalidInput("expected at() not to lie before starts_at: it would never fire", field="starts_at")
        if ends_at and timing.at >= ends_at:
            raise InvalidInput("expected at() to lie before ends_at: it would never fire", field="ends_at")


def _warnings(timing: Timing, timeout_s: int | None) -> tuple[str, ...]:
    warnings = timing.warnings if isinstance(timing, Cron) else ()
    if timeout_s is not None and timeout_s > CALL_MAX_S:
        warnings += (
            f"timeout_s of {timeout_s} s is the deadline of the run; a single HTTP call ends after {CALL_MAX_S} s",
        )
    return warnings
