"""The fate of an occurrence that has a row, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bucketd.explain.answer import Finding, Verdict, shown, span, times
from bucketd.store.evidence import Deed, HeldBy
from bucketd.store.history import Run
from bucketd.store.model import RunStatus

_SOURCES = {
    "late": "a runner confirmed it late, as the newest missed one",
    "settle": "it was found without a run when its minute was settled",
    "catch_up": "it was caught up after it was missed",
    "trigger": "it was triggered by hand, beside the schedule",
    "backfill": "a backfill asked for it",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What explains a row: the clock, who did something to the run or its schedule, holds, and runners that live."""

    now: datetime
    run_deeds: Sequence[Deed]
    deeds: Sequence[Deed]
    holds: Sequence[HeldBy]
    runners: int


def fate(run: Run, context: Context) -> Finding:
    """The verdict on a row."""
    finding = _FATES[run.status](run, context)
    facts = [*finding.facts]
    if run.origin in _SOURCES and run.status is not RunStatus.SKIPPED:
        facts.append(_SOURCES[run.origin] + _who(context.run_deeds, "trigger"))
    if run.missed:
        facts.append(f"it stands for {times(run.missed, 'missed occurrence')} before it as well")
    for failure in run.failures[-3:]:
        facts.append(f"attempt {failure.get('attempt')} failed at {failure.get('at')}: {_cause(failure)}")
    return Finding(finding.verdict, finding.text, tuple(facts))


def due_of(run: Run) -> datetime:
    """When it was to start."""
    return run.scheduled_at + timedelta(seconds=run.jitter_offset_s)


def holding(holds: Sequence[HeldBy]) -> str:
    """The holds in words."""
    return " and ".join(_hold(hold) for hold in holds)


def _succeeded(run: Run, context: Context) -> Finding:
    took = ""
    if run.started_at and run.finished_at:
        took = f" after {span((run.finished_at - run.started_at).total_seconds())}"
    status = f" (HTTP {run.http_status})" if run.http_status else ""
    attempts = "" if run.attempt == 1 else f" at attempt {run.attempt}"
    return Finding(Verdict.FIRED, f"It fired{_late(run)} and succeeded{attempts}{took}{status}.")


def _running(run: Run, context: Context) -> Finding:
    since = f" since {shown(run.started_at)}" if run.started_at else ""
    text = f"It fired{_late(run)}; attempt {run.attempt} is running{since}"
    if run.wake_at is None:
        return Finding(Verdict.RUNNING, f"{text}.")
    is_ = "is" if run.wake_at > context.now else "was"
    facts = (f"the end {is_} expected by {shown(run.wake_at)}",)
    return Finding(Verdict.RUNNING, f"{text}; its target accepted it and is to report the end.", facts)


def _retrying(run: Run, context: Context) -> Finding:
    when = f"the next attempt is at {shown(run.wake_at)}" if run.wake_at else "the next attempt is to come"
    if run.wake_at and run.wake_at <= context.now:
        when = "the next attempt is due" + _runners(context)
    if run.attempt == 0:
        return Finding(Verdict.RETRYING, f"A runner took it and gave it back before it was called; {when}.")
    what = "its runner was lost" if run.reason == "runner_lost" else "it failed"
    return Finding(Verdict.RETRYING, f"It fired{_late(run)}, {what} at attempt {run.attempt}; {when}.")


def _dead(run: Run, context: Context) -> Finding:
    reasons = {
        "attempts": f"all of its {times(run.attempt, 'attempt')} failed",
        "runner_lost": f"its runner was lost at the last of {times(run.attempt, 'attempt')}",
    }
    why = reasons.get(run.reason or "", f"attempt {run.attempt} failed for good ({run.reason or 'no reason given'})")
    at = f" at {shown(run.finished_at)}" if run.finished_at else ""
    text = f"It fired{_late(run)} and died{at}: {why}; there is a dead letter of it."
    return Finding(Verdict.DEAD, text)


def _skipped(run: Run, context: Context) -> Finding:
    rules = {
        "user": f"a user skipped it{_who(context.run_deeds, 'skip')}",
        "misfire": "it could not start within the misfire threshold, and the misfire policy does not make it up",
        "past_deadline": "it could not start before its deadline",
        "overlap": "another run of its schedule was going on, and the overlap policy does not let it start or wait",
    }
    rule = rules.get(run.reason or "", f"by the rule {run.reason or 'that is not named'}")
    late = "will not run" if run.scheduled_at > context.now else "was skipped"
    return Finding(Verdict.SKIPPED, f"It {late}: {rule}.")


def _cancelled(run: Run, context: Context) -> Finding:
    reasons = {
        "cancelled": f"cancelled by hand{_who(context.run_deeds, 'cancel')}",
        "deleted": f"cancelled because its schedule was deleted{_who(context.deeds, 'delete')}",
        "overlap": "cancelled by a newer run of its schedule, as the overlap policy (cancel_running) says",
        "dropped": "cancelled when the backlog was dropped (`bucketd audit --kind run` says by whom)",
    }
    why = reasons.get(run.reason or "", f"cancelled ({run.reason or 'no reason given'})")
    at = f" at {shown(run.finished_at)}" if run.finished_at else ""
    began = f"after {times(run.attempt, 'attempt')}" if run.attempt else "before it started"
    return Finding(Verdict.CANCELLED, f"It was {why}{at}, {began}.")


def _held(run: Run, context: Context) -> Finding:
    if not context.holds:
        return Finding(
            Verdict.HELD, "It was held back; no hold covers it any more, so it is judged within the next minute."
        )
    end = "its closing" if all(hold.kind == "breaker" for hold in context.holds) else "the release"
    text = f"It is held back by {holding(context.holds)}; {end} decides by the misfire policy."
    return Finding(Verdict.HELD, text)


_BUSY = {
    "target_busy": "as many runs of its target as may go on at once, or a second, are under way",
    "tenant_busy": "as many runs of its tenant as may go on at once are under way",
}


def _deferred(run: Run, context: Context) -> Finding:
    if run.reason in _BUSY:
        return Finding(Verdict.WAITING, f"It waits for a place: {_BUSY[run.reason]}.")
    if run.wake_at and run.wake_at > context.now:
        return Finding(Verdict.WAITING, f"It is to be started at {shown(run.wake_at)}.")
    since = f" since {shown(run.wake_at)}" if run.wake_at else ""
    behind = ", behind live work" if run.background else ""
    facts = (f"due {span((context.now - due_of(run)).total_seconds())} ago",)
    return Finding(Verdict.WAITING, f"It waits for a runner{since}{behind}{_runners(context)}.", facts)


def _waiting(run: Run, context: Context) -> Finding:
    return Finding(Verdict.WAITING, "It waits for another run of its schedule to end, by the overlap policy.")


_FATES: dict[RunStatus, Callable[[Run, Context], Finding]] = {
    RunStatus.SUCCEEDED: _succeeded,
    RunStatus.RUNNING: _running,
    RunStatus.RETRYING: _retrying,
    RunStatus.DEAD: _dead,
    RunStatus.SKIPPED: _skipped,
    RunStatus.CANCELLED: _cancelled,
    RunStatus.HELD: _held,
    RunStatus.DEFERRED: _deferred,
    RunStatus.WAITING: _waiting,
}


def _cause(failure: Mapping[str, Any]) -> str:
    """The status, unless it was a good one: then the failure was reported, or missed, afterwards."""
    status, error = failure.get("status"), failure.get("error")
    return f"HTTP {status}" if status and not 200 <= status < 300 else error or "no answer"


def _late(run: Run) -> str:
    """` 120 ms late`: an attempt's start is stored until the next one."""
    if run.started_at is None:
        return ""
    late = span((run.started_at - due_of(run)).total_seconds())
    return f" {late} late" if run.attempt <= 1 else f" (attempt {run.attempt} began {late} after it was due)"


def _runners(context: Context) -> str:
    return "" if context.runners else "; no runner is alive"


def _who(deeds: Sequence[Deed], action: str) -> str:
    found = [deed for deed in deeds if deed.action == action]
    return f" by {found[-1].actor} at {shown(found[-1].at)}" if found else ""


def _hold(hold: HeldBy) -> str:
    if hold.kind == "breaker":
        probe = f", next probe at {shown(hold.probe_at)}" if hold.probe_at else ""
        return f"the breaker of target {hold.target} ({hold.reason}), open since {shown(hold.created_at)}{probe}"
    what = {"all": "the hold of everything", "tenant": f"the hold of tenant {hold.tenant}"}.get(
        hold.scope, f"the hold of target {hold.target}"
    )
    actor = f" by {hold.actor}" if hold.actor else ""
    reason = f" ({hold.reason})" if hold.reason else ""
    return f"{what}{reason}, made at {shown(hold.created_at)}{actor}"
