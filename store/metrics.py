"""The metrics that scheduler nodes and runners show: names, types, labels and meaning, a contract with whoever alerts on them.

No label's values grow with tenants, schedules or targets, but for the targets that are not called just now, at most TARGETS of them.
ops/metrics.md lists all this for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

TARGETS = 20  # open breakers that are shown by the name of their target; the others are one number

# Most calls start within 10 ms of due; what an outage delays comes minutes or hours late.
LATENESS_S = (.0025, .005, .01, .02, .035, .05, .1, .2, .35, .5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600, 14400)  # fmt: skip
DURATION_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `values`: all that its only label can be, each of them shown from the start (else a first increase is no increase)."""

    name: str  # as it is scraped; that of a histogram without _bucket, _sum, _count
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _counter(name: str, text: str, label: str = "", values: Sequence[str] = ()) -> Definition:
    return Definition(f"bucketd_{name}_total", "counter", text, (label,) if label else (), tuple(values))


def _gauge(name: str, text: str, labels: tuple[str, ...] = (), values: Sequence[str] = ()) -> Definition:
    return Definition(f"bucketd_{name}", "gauge", text, labels, tuple(values))


def _histogram(
    name: str, text: str, bounds: tuple[float, ...], label: str = "", values: Sequence[str] = ()
) -> Definition:
    return Definition(f"bucketd_{name}_seconds", "histogram", text, (label,) if label else (), tuple(values), bounds)


EVERY_PROCESS = (
    _gauge("build_info", "1; the version and the kind of process.", ("version", "role")),
    _gauge("ready", "1 while /readyz says yes."),
    _counter("store_failures", "Tries that failed as a store was away, slow or refused; each is repeated.", "part"),
)

DUTIES = ("own", "plan", "drain", "settle", "expand", "reap", "retain", "zones", "survey")

SCHEDULER = (
    _counter("fires_planned", "Fires written to buckets; planning anew writes some again."),
    _counter("fires_drained", "Fires moved from buckets to queues."),
    _counter("buckets_expired", "Buckets deleted undrained, two minutes past their minute; settling judges what was in them."),
    _counter("queue_full", "Drain rounds that met a queue at its cap (runners do not keep up), or a shard of Redis that did not answer."),
    _histogram("duty_duration", "One turn of a duty of the node, a turn that finds nothing to do included.", DURATION_S, "duty", DUTIES),
    _gauge("planned_ahead_seconds", "How far ahead of now the partition that is furthest behind is planned; none without partitions."),
    _gauge("feed_lag_seconds", "Since when this node has not followed the change feed; none without partitions."),
    _gauge("settled_lag_seconds", "How far the partition of this node that is furthest behind is settled behind now: 60 to 70 s is"
        " usual, as a minute is settled when it is over; none without partitions."),
    _gauge("partitions_owned", "Partitions of this node whose lease it believes in."),
    _gauge("ring_nodes", "Scheduler nodes that this one sees in the ring."),
    _counter("partition_changes", "Changes of partitions at this node: taken; released (a hand-over); lost (a lease that ran out or that"
        " another has); zombie (a newer owner stands at the fence).", "change", ("taken", "released", "lost", "zombie")),
    _counter("redis_lost_data", "Partitions taken over again because Redis had lost what was written of them."),
    _gauge("clock_skew_seconds", "How far this machine's clock is ahead of the cluster's, which is Postgres's."),
    _counter("settled_missing", "Occurrences that settling found without a row."),
    _counter("settled_rows", "Verdicts that settling, and the expansion of long outages, wrote: deferred (reconciled: it runs now), held,"
        " or skipped by the reason.", "verdict", ("deferred", "held", "skipped_misfire", "skipped_past_deadline")),
    _counter("windows_owed", "Windows of partitions too long to settle at once, expanded in chunks."),
    _counter("backfill_rows", "Rows that backfills of users and owed windows made."),
    _counter("occurrences_expired", "Occurrences counted in no row, as their days are past retention."),
    _counter("runners_dead", "Runners found without a heartbeat, by this node."),
    _counter("runs_recovered", "Runs that wake again because their runner died, and held ones that no hold covered."),
    _counter("runs_orphaned", "Running rows without a claim, recovered: more than 0 is a defect."),
    _counter("specs_quarantined", "Rules that this node found it cannot compute."),
    _counter("schedules_retimed", "Schedules moved to newer tzdata."),
)  # fmt: skip

QUEUES = ("shard", "queue")

# Of the cluster, not of a process: shown by one node at a time, who owns partition 0. Use max() over instances, and absent().
CLUSTER = (
    _gauge("survey_age_seconds", "Age of the figures of the cluster that this node shows; gone after a minute."),
    _gauge("queue_fires", "Fires drained and not acknowledged by a runner yet, by shard and queue (main, crowd).", QUEUES),
    _gauge("queue_oldest_seconds", "How long the oldest of them has been in the queue.", QUEUES),
    _gauge("oldest_unsettled_seconds", "How far the partition that is furthest behind is settled behind now, owned or not."),
    _gauge("partitions_unowned", "Partitions that nobody owns, by Postgres."),
    _gauge("runners_alive", "Runners with a young heartbeat."),
    _gauge("runs_overdue", "Live rows that a runner could have taken for over a minute; counted up to 10,000."),
    _gauge("runs_held", "Rows under a hold or an open breaker; counted up to 10,000."),
    _gauge("backfills_open", "Backfills and owed windows not expanded to their end."),
    _gauge("dead_letters", "Dead letters; counted up to 10,000."),
    _gauge("holds", "Holds of users, by scope.", ("scope",), ("all", "tenant", "target")),
    _gauge("breaker_openings", f"How often in a row the open breaker of a target has opened, of the {TARGETS} oldest; absent: closed.",
        ("target",)),
    _gauge("breakers_open", "Targets whose breaker is open."),
    _gauge("specs_failed", "Rules that no node can compute: their schedules do not fire."),
    _gauge("days_missing", "Days of runs that should be there and are not."),
    _gauge("days_ahead_seconds", "Up to where days of runs are made ahead."),
)  # fmt: skip

REFUSALS = (
    "duplicate",
    "paused",
    "held",
    "version",
    "floor",
    "window",
    "days",
    "early",
    "late",
    "overlap",
    "busy",
    "missing",
    "failed",
)
OUTCOMES = ("succeeded", "failed", "accepted", "given_back", "deferred", "fenced", "dropped")
STEPS = ("confirm", "wake", "result")
ENDS = ("dead", "held", "waiting", "skipped", "cancelled", "retrying", "overtaken")

RUNNER = (
    _histogram("lateness", "Start of the first call of a run after due, by Postgres's clock, never too little. fire: on its way through"
        " Redis; row: after it stood as a row, deferred, held or waiting. Not triggered, backfilled and caught up ones.",
        LATENESS_S, "path", ("fire", "row")),
    _counter("fires_read", "Fires read from the queues, those of reclaimed messages again."),
    _counter("messages_malformed", "Messages that could not be read; settling covers what they held."),
    _counter("messages_reclaimed", "Messages taken over from runners that left them alone."),
    _counter("confirms", "Fires by verdict: confirmed; kept (asked about again soon); duplicate (has its row already); else why there is"
        " no run now: overlap and busy have a row, held gets one, missing: the schedule is gone.", "verdict",
        ("confirmed", "kept", *REFUSALS)),
    _counter("attempts", "Attempts by outcome: accepted (202, goes on there); given_back and deferred were not called; fenced and"
        " dropped came too late to count.", "outcome", OUTCOMES),
    _counter("runs_died", "Runs whose last attempt failed, or whose target rejected them: each leaves a dead letter."),
    _counter("runs_woken", "Rows taken for an attempt: retries, deferred, triggered, backfilled, caught up."),
    _counter("wake_verdicts", "Rows that got a verdict instead of an attempt when they woke, by their status then; overtaken: cancelled"
        " by a newer run.", "status", ENDS),
    _histogram("batch_duration", "One batch of a step, waiting for a connection and repeats included.", DURATION_S, "step",
        STEPS),
    _histogram("call_duration", "One request to a target or a hook, however it ended.", DURATION_S),
    _gauge("calls_in_flight", "Requests on their way."),
    _gauge("calls_most", "Single calls that may be in flight (BUCKETD_CONCURRENCY)."),
    _gauge("fires_waiting", "Fires read and not confirmed."),
    _gauge("runs_ready", "Runs claimed whose call has not begun."),
    _gauge("runs_open", "Runs claimed whose result is not written."),
    _gauge("runner_alive", "1 while this runner believes that its row in Postgres lives; with 0 it begins no call."),
    _counter("incarnations_lost", "How often Postgres held this runner for dead."),
    _counter("claims_lost", "Claims that went with them."),
    _counter("runs_stale", "Claimed runs that waited too long for their call and went back into their rows."),
    _counter("runs_swept", "Rows freed of claims that this runner did not know: lost replies."),
    _counter("limit_answers", "Limited runs that got a place, and those that wait as rows.", "answer", ("placed", "unplaced")),
    _counter("breaker_changes", "Breakers that this runner opened and closed, runs it let through to probe, held runs it judged after.",
        "change", ("opened", "closed", "probe", "judged")),
    _counter("dead_hooks", "What came of telling targets of dead runs.", "outcome", ("told", "failed", "given_up")),
)  # fmt: skip

OF_SCHEDULER = EVERY_PROCESS + SCHEDULER + CLUSTER
OF_RUNNER = EVERY_PROCESS + RUNNER
ALL = EVERY_PROCESS + SCHEDULER + CLUSTER + RUNNER
