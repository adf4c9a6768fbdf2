"""Why an occurrence has no row: it is counted in another one, it is to come, somebody stopped it, or nobody has come to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bucketd.explain.answer import Finding, Verdict, shown, span, times
from bucketd.explain.off_spec import by
from bucketd.explain.pauses import Pause
from bucketd.explain.rows import holding
from bucketd.store.evidence import Deed, HeldBy, Owed, Service, Standing
from bucketd.store.history import Run

JUST_NOW = timedelta(seconds=10)  # a fire may be on its way to a runner for as long as that
STALLED = timedelta(minutes=3)  # a healthy cluster settles each minute soon after its end
PLANNED_AHEAD = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Scene:
    """An occurrence without a row, and everything that may explain it. `carrier`: the run that counts it."""

    slot: datetime
    due: datetime
    now: datetime
    days_from: datetime
    schedule: Standing
    pauses: Sequence[Pause]
    deeds: Sequence[Deed]
    service: Service
    holds: Sequence[HeldBy]
    owed: Owed | None
    carrier: Run | None


def absence(scene: Scene) -> Finding:
    """The first explanation that holds, from the certain to the possible."""
    rules = (
        (_to_come,) if scene.due > scene.now else (_paused, _counted, _expired, _dropped, _owed, _failed, _unsettled)
    )
    for rule in rules:
        finding = rule(scene)
        if finding is not None:
            return finding
    return Finding(
        Verdict.UNEXPLAINED,
        f"Nothing explains it: it was due at {shown(scene.due)}, is settled, and has neither a run nor a count.",
        (f"its partition {scene.schedule.partition} is settled through {shown(scene.service.settled_through)}",),
    )


def _to_come(scene: Scene) -> Finding:
    stopped = _paused(scene) or _failed(scene)
    if stopped is not None:
        return stopped
    ahead = span((scene.due - scene.now).total_seconds())
    if scene.holds:
        return Finding(Verdict.HELD, f"It is due in {ahead}, and will be held back by {holding(scene.holds)}.")
    planned_at = scene.due.replace(second=0, microsecond=0) - PLANNED_AHEAD
    planned = "by now" if planned_at <= scene.now else f"from {shown(planned_at)} on"
    return Finding(Verdict.AHEAD, f"It is ahead: it fires in {ahead}.", (f"schedulers have it in Redis {planned}",))


def _paused(scene: Scene) -> Finding | None:
    pause = next((pause for pause in scene.pauses if pause.holds(scene.slot)), None)
    if pause is None:
        return None
    start = f" from {shown(pause.start)} on" if pause.start else ""
    end = f" until {shown(pause.end)}" if pause.end else ""
    actor = f", by {pause.actor}" if pause.actor else ""
    reason = f" ({pause.reason})" if pause.reason else ""
    is_, facts = "is" if scene.due > scene.now else "was", []
    if pause.lifted_at:
        facts.append(f"resumed at {shown(pause.lifted_at)} by {pause.lifted_by}; what lay in the pause does not run")
    else:
        facts.append("it is paused still" if pause.until is None else "the pause ends by itself then")
    return Finding(Verdict.PAUSED, f"The schedule {is_} paused then{start}{end}{actor}{reason}.", tuple(facts))


def _counted(scene: Scene) -> Finding | None:
    run = scene.carrier
    if run is None:
        return None
    count = times(run.missed, "missed one")
    text = f"It was missed and is counted in the run of {shown(run.scheduled_at)}, which stands for {count}."
    return Finding(Verdict.COUNTED, text, (f"that run is {run.status} (its id: {run.id})",))


def _expired(scene: Scene) -> Finding | None:
    if scene.slot >= scene.days_from:
        return None
    text = f"Its history is gone: runs are kept from {shown(scene.days_from)} on, and it lies before that."
    return Finding(Verdict.EXPIRED, text)


def _dropped(scene: Scene) -> Finding | None:
    """Due before a pause, and not started by then."""
    later = next((p for p in scene.pauses if p.start is not None and p.start > scene.slot), None)
    below = scene.slot < scene.schedule.floor
    if later is not None and (later.lifted_at is None or below):
        assert later.start is not None
        actor = f" by {later.actor}" if later.actor else ""
        reason = f" ({later.reason})" if later.reason else ""
        text = f"The schedule was paused at {shown(later.start)}{actor}{reason}, before this was started: a pause drops it."
        return Finding(Verdict.PAUSED, text)
    if not below:
        return None
    text = f"It lies below the schedule's floor, {shown(scene.schedule.floor)}: what is older was resumed past, or counted."
    resumes = [deed for deed in scene.deeds if deed.action == "resume" and deed.at > scene.slot]
    facts = (f"resumed at {shown(resumes[0].at)}{by(resumes)}",) if resumes else ()
    return Finding(Verdict.BELOW_FLOOR, text, facts)


def _owed(scene: Scene) -> Finding | None:
    owed = scene.owed
    if owed is None:
        return None
    window = f"from {shown(owed.from_at)} to {shown(owed.until_at)}"
    if owed.error:
        text = f"Nobody watched {window}, and the expansion of that window was given up: {owed.error}"
        return Finding(Verdict.UNSETTLED, text)
    text = f"Nobody watched {window}; what was missed then is being judged now, and this schedule's turn is to come."
    return Finding(
        Verdict.OWED, text, (f"{owed.done:,} of {times(owed.schedules, 'schedule')} of its partition are done",)
    )


def _failed(scene: Scene) -> Finding | None:
    """A spec in quarantine: its schedules do not fire, and are passed over by settling."""
    schedule = scene.schedule
    if schedule.error is None or schedule.failed_at is None or scene.due < schedule.failed_at - STALLED:
        return None
    return Finding(
        Verdict.QUARANTINED,
        f"Its rule cannot be computed, since {shown(schedule.failed_at)}: {schedule.error}",
        ("it fires again once a scheduler can compute it; a put with a sound timing mends it at once",),
    )


def _unsettled(scene: Scene) -> Finding | None:
    """Not settled yet: on its way, or nobody has come to it."""
    service, since_due = scene.service, scene.now - scene.due
    if scene.due <= service.settled_through:
        return None
    facts = (
        f"its partition {scene.schedule.partition} is settled through {shown(service.settled_through)}",
        f"owner of the partition: {service.owner or 'nobody'}; runners alive: {service.runners}",
    )
    if scene.holds:
        text = f"It was due {span(since_due.total_seconds())} ago and will be held back by {holding(scene.holds)}."
        return Finding(Verdict.HELD, text, facts)
    if since_due <= JUST_NOW:
        text = f"It fell due {span(since_due.total_seconds())} ago: it is on its way to a runner."
        return Finding(Verdict.QUEUED, text, facts)
    return Finding(Verdict.UNSETTLED, f"It was due {span(since_due.total_seconds())} ago: {_whom(scene)}", facts)


def _whom(scene: Scene) -> str:
    """Who is missing."""
    service = scene.service
    behind = scene.now - service.best_settled_through
    verdict = "it gets its run, or its count, by the misfire policy once they are back."
    if service.runners == 0:
        return f"no runner is alive; {verdict}"
    if service.owners == 0:
        return f"no scheduler is at work; {verdict}"
    if behind > STALLED:
        last = shown(service.best_settled_through)
        return f"nothing was settled since {last}, so schedulers or Redis are away; {verdict}"
    if service.owner is None:
        return f"its partition has no owner at the moment; one takes it within seconds, and {verdict}"
    return "its minute is not settled yet; it may be queued still, and has its run or its count within two minutes."
