"""What a runner shows to whoever watches it: what its services reported, and where it stands now. Reads what they know; asks nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from bucketd.runner.outage import FAILURES
from bucketd.store.clock import monotonic
from bucketd.store.exposition import Histogram, Sample
from bucketd.store.metrics import DURATION_S, ENDS, OF_RUNNER, OUTCOMES, REFUSALS, STEPS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from bucketd.runner.call import Caller
    from bucketd.runner.heartbeat import Heartbeat
    from bucketd.runner.intake import Intake
    from bucketd.runner.lateness import Lateness

    Report = TypeVar("Report", bound=DataclassInstance)

# The names of `Runner.totals` (fields of reports), and the metrics that they are, with the value of its label.
COUNTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fires_read": ("bucketd_fires_read_total", ()),
    "malformed": ("bucketd_messages_malformed_total", ()),
    "reclaimed": ("bucketd_messages_reclaimed_total", ()),
    "confirmed": ("bucketd_confirms_total", ("confirmed",)),
    "kept": ("bucketd_confirms_total", ("kept",)),
    **{f"refused_{verdict}": ("bucketd_confirms_total", (verdict,)) for verdict in REFUSALS},
    **{outcome: ("bucketd_attempts_total", (outcome,)) for outcome in OUTCOMES},
    "died": ("bucketd_runs_died_total", ()),
    "woken": ("bucketd_runs_woken_total", ()),
    **{f"ended_{status}": ("bucketd_wake_verdicts_total", (status,)) for status in ENDS},
    "incarnations_lost": ("bucketd_incarnations_lost_total", ()),
    "claims_lost": ("bucketd_claims_lost_total", ()),
    "stale": ("bucketd_runs_stale_total", ()),
    "runs_swept": ("bucketd_runs_swept_total", ()),
    "placed": ("bucketd_limit_answers_total", ("placed",)),
    "unplaced": ("bucketd_limit_answers_total", ("unplaced",)),
    "breakers_opened": ("bucketd_breaker_changes_total", ("opened",)),
    "breakers_closed": ("bucketd_breaker_changes_total", ("closed",)),
    "breaker_probes": ("bucketd_breaker_changes_total", ("probe",)),
    "breaker_runs_judged": ("bucketd_breaker_changes_total", ("judged",)),
    "hooks_told": ("bucketd_dead_hooks_total", ("told",)),
    "hooks_failed": ("bucketd_dead_hooks_total", ("failed",)),
    "hooks_given_up": ("bucketd_dead_hooks_total", ("given_up",)),
}
# The names of `Runner.state`, likewise.
STANDING: Mapping[str, str] = {
    "fires_waiting": "bucketd_fires_waiting",
    "ready": "bucketd_runs_ready",
    "open": "bucketd_runs_open",
    "in_flight": "bucketd_calls_in_flight",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a meter looks at, once a runner has it."""

    caller: Caller
    heartbeat: Heartbeat
    intake: Intake
    lateness: Lateness
    state: Callable[[], Mapping[str, int]]
    works: Callable[[], bool]


class Meter:
    """Of one runner: `totals` are the runner's, `parts` are set when it has them."""

    definitions = OF_RUNNER

    def __init__(self, totals: Mapping[str, int], concurrency: int) -> None:
        self._totals = totals
        self._concurrency = concurrency
        self._steps = {step: Histogram(DURATION_S) for step in STEPS}
        self.parts: Parts | None = None

    async def timed(self, step: str, turn: Awaitable[Report]) -> Report:
        """The report of a turn. How long it took is noted, unless there was nothing to do."""
        begun = monotonic()
        report = await turn
        if any(getattr(report, item.name) for item in fields(report)):
            self._steps[step].observe(monotonic() - begun)
        return report

    def checks(self) -> dict[str, bool]:
        """What makes a runner ready. `alive`: its row in Postgres lives, as far as it knows; `redis`: its last reads were answered."""
        parts = self.parts
        if parts is None:
            return {"works": False}
        return {
            "postgres": parts.heartbeat.answered,
            "redis": parts.intake.reads,
            "alive": parts.heartbeat.believed(),
            "works": parts.works(),
        }

    def read(self) -> Iterator[Sample]:
        """Everything, as of now."""
        for name, (metric, labels) in COUNTED.items():
            yield Sample(metric, self._totals.get(name, 0), labels)
        for part, failures in FAILURES.items():
            yield Sample("bucketd_store_failures_total", failures, (part,))
        for step, turns in self._steps.items():
            yield Sample("bucketd_batch_duration_seconds", turns, (step,))
        yield Sample("bucketd_calls_most", self._concurrency)
        if self.parts is not None:
            yield from _standing(self.parts)


def _standing(parts: Parts) -> Iterator[Sample]:
    state = parts.state()
    for name, metric in STANDING.items():
        yield Sample(metric, state[name])
    yield Sample("bucketd_runner_alive", float(parts.heartbeat.believed()))
    yield Sample("bucketd_lateness_seconds", parts.lateness.of_fires, ("fire",))
    yield Sample("bucketd_lateness_seconds", parts.lateness.of_rows, ("row",))
    yield Sample("bucketd_call_duration_seconds", parts.caller.durations)
