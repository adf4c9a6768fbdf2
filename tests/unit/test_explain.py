"""What is decided without a database: which instant is an occurrence and why not, for random timings; pauses; who rules first."""

from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketd.explain import off_spec
from bucketd.explain.absence import Scene, absence
from bucketd.explain.answer import Verdict, shown, span
from bucketd.explain.pauses import Pause, pauses
from bucketd.explain.question import choose, made_up, minute_of, read_wall
from bucketd.explain.timeline import Timeline, instant
from bucketd.store.evidence import Deed, HeldBy, Owed, Service, Standing, Version
from bucketd.store.history import Run
from bucketd.store.model import RunStatus
from bucketd.timing import AtSpec, CronError, CronSpec, EverySpec, Spec, fires_between, parse_cron
from bucketd.timing.zones import zone
from tests.unit.timing.strategies import changes, expressions, policies

ID = UUID(int=7)
NOON = datetime(2027, 6, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)


def standing(spec: Spec, phase: int = 0, **changed: Any) -> Standing:
    """A schedule that has been there for ever."""
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(Standing))
    values |= {
        "id": ID, "partition": 7, "rule": spec.rule(), "expression": "typed", "phase": phase, "jitter_offset_s": 0,
        "timing_version": 1, "timing_from": LONG_AGO, "floor": LONG_AGO, "paused": False, "exclude_dates": [], "calendars": [],
        "created_at": LONG_AGO, "target_id": 1,
    }  # fmt: skip
    return Standing(**values | changed)


def asked(schedule: Standing, at: datetime) -> tuple[datetime | None, Verdict | None]:
    """(the occurrence that is meant, or why there is none)."""
    timeline = Timeline(schedule, ())
    choice = choose(timeline, at, ())
    if choice.slot is not None:
        assert choice.in_bounds
        return choice.slot, None
    assert choice.era
    finding = off_spec.no_occurrence(at, choice.era, schedule, (), {})
    assert finding.text.endswith(".")
    return None, finding.verdict


@st.composite
def questions(draw: st.DrawFn) -> tuple[Spec, int, datetime]:
    """A spec, its phase, and an instant that often is, or nearly is, one of its occurrences; often near a change of the clocks."""
    tz, change_s = draw(changes)
    steps = st.one_of(st.just(0), st.integers(-8, 8), st.integers(-200, 200))  # of a quarter of an hour
    near_s = (change_s + draw(steps) * 900) // 60 * 60
    day = near_s // 86_400
    exclude = draw(st.sampled_from([(), (), (day,), (day - 1, day + 1)]))
    phase = 0
    spec: Spec
    match draw(st.sampled_from(["cron", "cron", "cron", "every", "at"])):
        case "cron":
            gap, fold = draw(policies)
            try:
                spec = replace(parse_cron(draw(expressions), tz, gap=gap, fold=fold)[0], exclude=exclude)
            except CronError:
                assume(False)
        case "every":
            spec, phase = (
                EverySpec(draw(st.sampled_from([1, 7, 60, 61, 900, 86_400])), exclude, tz),
                draw(st.integers(0, 6)),
            )
        case _:
            spec, phase = AtSpec(), near_s + draw(st.integers(0, 59))
    coming = fires_between(spec, near_s, near_s + 10 * 86_400, phase, 3)
    at_s = draw(st.sampled_from([near_s, *coming])) + draw(st.sampled_from([0, 0, 0, 1, 30, 59, -1, 60]))
    return spec, phase, instant(at_s)


@settings(max_examples=600, deadline=None)
@given(questions())
def test_an_occurrence_is_meant_exactly_where_the_minute_has_one(question: tuple[Spec, int, datetime]) -> None:
    spec, phase, at = question
    if not LONG_AGO + DAY < at < datetime(2105, 1, 1, tzinfo=UTC):
        return
    at_s, minute_s = int(at.timestamp()), minute_of(at)
    slots = fires_between(spec, minute_s, minute_s + 60, phase)
    slot, verdict = asked(standing(spec, phase), at)
    if slots:
        assert slot is not None
        assert slot.timestamp() in slots
        assert abs(slot.timestamp() - at_s) == min(abs(one - at_s) for one in slots)
        return
    assert slot is None
    assert verdict == reason(spec, phase, minute_s)


def reason(spec: Spec, phase: int, minute_s: int) -> Verdict:
    """Why a minute has no occurrence, found by changing the rule: without its exclusions, and by the wall clock alone."""
    if isinstance(spec, CronSpec | EverySpec) and spec.exclude:
        plain = replace(spec, exclude=())
        if fires_between(plain, minute_s, minute_s + 60, phase):
            return Verdict.EXCLUDED
    if isinstance(spec, CronSpec):
        made_up = spec.gap == "skip" and fires_between(replace(spec, gap="run_after"), minute_s, minute_s + 60)
        if made_up or _lost_in_long_jump(spec, minute_s):
            return Verdict.IN_GAP
        if fires_between(replace(spec, fold="both"), minute_s, minute_s + 60):
            return Verdict.IN_FOLD
    return Verdict.NOT_IN_SPEC


def _lost_in_long_jump(spec: CronSpec, minute_s: int) -> bool:
    """A jump of more than three hours over a wall time that is asked for: nothing is made up, unless by shifting."""
    info = zone(spec.tz)
    before, after = (instant(minute_s + d).astimezone(info).replace(tzinfo=None) for d in (-1, 0))
    jumped = after - before - timedelta(seconds=1)
    if jumped <= 3 * HOUR or spec.gap == "shift":
        return False
    low = before + timedelta(seconds=1)
    walls = [low + n * MINUTE for n in range(int(jumped / MINUTE))]
    return any(_asks_for(spec, wall) for wall in walls)


def _asks_for(spec: CronSpec, wall: datetime) -> bool:
    utc = replace(spec, tz="UTC")
    wall_s = int(wall.replace(tzinfo=UTC).timestamp())
    return bool(fires_between(utc, wall_s, wall_s + 60))


@settings(max_examples=300, deadline=None)
@given(questions())
def test_a_wall_time_means_the_instants_that_show_it(question: tuple[Spec, int, datetime]) -> None:
    spec, _, at = question
    if not isinstance(spec, CronSpec) or not LONG_AGO + DAY < at < datetime(2105, 1, 1, tzinfo=UTC):
        return
    info = zone(spec.tz)
    wall = at.astimezone(info).replace(tzinfo=None)
    reading = read_wall(wall, spec.tz)
    assert at in reading.instants
    assert not reading.missing
    assert all(one.astimezone(info).replace(tzinfo=None) == wall for one in reading.instants)
    assert (len(reading.instants) == 2) == (reading.note is not None)


@pytest.mark.parametrize(
    ("wall", "tz", "jump", "note"),
    [
        ((2027, 3, 14, 2, 0), "America/New_York", (2027, 3, 14, 7), "the clocks go from 02:00 to 03:00"),
        ((2027, 3, 14, 2, 59), "America/New_York", (2027, 3, 14, 7), "02:59 does not exist on 2027-03-14"),
        ((2011, 12, 30, 12, 0), "Pacific/Apia", (2011, 12, 30, 10), "12:00 does not exist on 2011-12-30"),
    ],
)
def test_a_missing_wall_time_is_that_of_its_jump(
    wall: tuple[int, ...], tz: str, jump: tuple[int, ...], note: str
) -> None:
    missing = datetime(*wall)  # type: ignore[arg-type]
    reading = read_wall(missing, tz)
    assert reading.missing
    assert reading.instants[0] == datetime(*jump, tzinfo=UTC)  # type: ignore[misc,arg-type]
    assert note in str(reading.note)
    era = Timeline(standing(parse_cron("5 4 * * *", tz)[0]), ()).current
    assert made_up(era, missing, reading) is None


# Pauses.


def deed(action: str, at: datetime, **changed: Any) -> Deed:
    return Deed(at, "ann", action, str(ID), changed)


def test_pauses_out_of_the_log() -> None:
    until = (NOON + 3 * HOUR).isoformat()
    log = [
        deed("create", NOON - HOUR),
        deed("pause", NOON, pause_reason=[None, "x"], paused_until=[None, until]),
        deed("edit", NOON + HOUR, pause_reason=["x", "y"]),
        deed("resume", NOON + 2 * HOUR, paused=[True, False]),  # lifted ahead of its end
    ]
    schedule = standing(EverySpec(60))
    (one,) = pauses(schedule, log)
    assert (one.start, one.end, one.reason) == (NOON, NOON + 3 * HOUR, "y")
    early = [*log, deed("edit", NOON + 2 * HOUR + MINUTE, paused_until=[until, None])]
    assert pauses(schedule, early)[0].end == NOON + 2 * HOUR + MINUTE
    by_hand = [*log[:-1], deed("resume", NOON + 2 * HOUR, paused_until=[until, None])]
    assert pauses(schedule, by_hand)[0].end == NOON + 2 * HOUR


def test_pauses_that_the_log_has_forgotten_or_not_come_to() -> None:
    paused = standing(EverySpec(60), paused=True)
    assert pauses(paused, []) == [Pause(None, None, None, None, None)]
    assert pauses(paused, [deed("edit", NOON)], cut_off=True)[0].start == NOON
    assert pauses(paused, [deed("pause", NOON - HOUR), deed("resume", NOON)])[-1].start == NOON
    other = Deed(NOON, "eve", "pause", str(UUID(int=9)), {})  # of an earlier schedule of the name
    assert pauses(paused, [other]) == [Pause(None, None, None, None, None)]
    (one,) = pauses(standing(EverySpec(60)), [deed("resume", NOON)])
    assert (one.start, one.end) == (None, NOON)


# The order of explanations.


def run(at: datetime) -> Run:
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(Run))
    return Run(**values | {"id": "r", "scheduled_at": at, "status": RunStatus.SUCCEEDED, "missed": 3})


SERVICE = Service(NOON - HOUR, None, NOON - HOUR, 0, 0)
FULL = Scene(
    NOON, NOON, NOON + HOUR, NOON + MINUTE, standing(EverySpec(60), floor=NOON + MINUTE, error="boom", failed_at=NOON),
    [Pause(NOON - HOUR, NOON + HOUR, "ann", None, None), Pause(NOON + HOUR, None, "bob", None, None)], [], SERVICE,
    [HeldBy("user", "all", None, None, "", NOON, None, None)], Owed(NOON - HOUR, NOON + HOUR, None, 1, 2), run(NOON + HOUR),
)  # fmt: skip


def test_the_certain_goes_before_the_possible() -> None:
    """Everything holds at once; one after the other is taken away."""
    scene, seen = FULL, []
    changed: tuple[dict[str, Any], ...] = (
        {}, {"pauses": FULL.pauses[1:]}, {"carrier": None}, {"days_from": LONG_AGO}, {"pauses": []},
        {"schedule": replace(FULL.schedule, floor=LONG_AGO)}, {"owed": None},
        {"schedule": replace(FULL.schedule, floor=LONG_AGO, error=None)}, {"holds": []}, {"now": NOON + timedelta(seconds=9)},
        {"service": replace(SERVICE, settled_through=NOON)},
    )  # fmt: skip
    for without in changed:
        scene = replace(scene, **without)
        seen.append(absence(scene).verdict)
    assert seen == [
        Verdict.PAUSED, Verdict.COUNTED, Verdict.EXPIRED, Verdict.PAUSED, Verdict.BELOW_FLOOR, Verdict.OWED,
        Verdict.QUARANTINED, Verdict.HELD, Verdict.UNSETTLED, Verdict.QUEUED, Verdict.UNEXPLAINED,
    ]  # fmt: skip


def test_what_is_ahead_is_stopped_by_a_pause_then_a_failure_then_a_hold() -> None:
    scene, seen = replace(FULL, now=NOON - HOUR), []
    changed: tuple[dict[str, Any], ...] = ({}, {"pauses": []}, {"schedule": standing(EverySpec(60))}, {"holds": []})
    for without in changed:
        scene = replace(scene, **without)
        seen.append(absence(scene).verdict)
    assert seen == [Verdict.PAUSED, Verdict.QUARANTINED, Verdict.HELD, Verdict.AHEAD]


# Timelines.


def test_each_instant_belongs_to_the_version_that_held() -> None:
    hourly, half = EverySpec(3_600).rule(), EverySpec(1_800).rule()
    versions = [
        Version(1, hourly, 0, 0, NOON, NOON + 3 * HOUR),
        Version(2, half, 0, 0, NOON + 3 * HOUR, NOON + 5 * HOUR),
    ]
    timeline = Timeline(standing(EverySpec(7_200), timing_version=3, timing_from=NOON + 6 * HOUR), versions)
    for hours, version in ((0, 1), (2.9, 1), (3, 2), (6, 3), (600, 3)):
        era = timeline.holding(NOON + hours * HOUR)
        assert era
        assert era.version == version
    assert timeline.holding(NOON + 5.5 * HOUR) is None  # it had ended
    assert timeline.nearest(NOON + 5.4 * HOUR).version == 2
    assert timeline.nearest(NOON - DAY).version == 1
    assert timeline.before(NOON + 6 * HOUR) == NOON + 4.5 * HOUR
    assert timeline.after(NOON + 4.5 * HOUR) == NOON + 6 * HOUR
    start, end = int(NOON.timestamp()), int((NOON + 9 * HOUR).timestamp())
    assert [(at_s - start) / 3_600 for at_s, _ in timeline.fires(start, end, 99)] == [0, 1, 2, 3, 3.5, 4, 4.5, 6, 8]
    assert len(timeline.fires(start, end, 4)) == 4


def test_excluded_dates_near_a_jump_over_midnight() -> None:
    """Cairo, 2026-04-24: 00:00 does not exist and is made up at 01:00 of an excluded date."""
    spec = replace(
        parse_cron("0 0 * * *", "Africa/Cairo")[0],
        exclude=(date(2026, 4, 24).toordinal() - date(1970, 1, 1).toordinal(),),
    )
    assert asked(standing(spec), datetime(2026, 4, 23, 22, 0, tzinfo=UTC)) == (None, Verdict.EXCLUDED)


def test_words() -> None:
    assert [span(s) for s in (-1, 0.12, 12.34, 75, 11_400)] == [
        "0 ms",
        "120 ms",
        "12.3 s",
        "1 minute 15 seconds",
        "3 hours 10 minutes",
    ]
    assert shown(NOON + timedelta(microseconds=1_500)) == "2027-06-01T12:00:00.001Z"
