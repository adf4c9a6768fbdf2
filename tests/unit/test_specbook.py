"""The book's two questions, answered for a table of schedules as Postgres would, against plain enumeration."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.scheduler import agenda
from bucketd.scheduler.specbook import DueSpecs, Instant, SpecBook
from bucketd.store.feed import SpecRow
from bucketd.timing import AtSpec, CronSpec, EverySpec, Spec, fires_between, next_fire, parse_cron, previous_fire

NOON = int(datetime(2026, 3, 29, 0, 58, tzinfo=UTC).timestamp())  # two minutes before Berlin's clocks jump
CRONS = ["* * * * *", "*/5 * * * *", "0 * * * *", "59 * * * *", "2,3 1 * * *", "30 2 * * *", "0 3 * * *", "0 0 1 1 *"]
INTERVALS = [1, 7, 59, 60, 61, 90, 300, 301, 3_600, 86_400, 604_800]


class Schedule(NamedTuple):
    """What the book's answer is matched with."""

    spec_id: int
    phase: int
    jitter_offset_s: int
    due_phase: int


class Fire(NamedTuple):
    """An occurrence as planning sees it."""

    place: int
    instant: Instant


def schedule(spec_id: int, spec: Spec, phase: int, jitter_s: int) -> Schedule:
    """As the trigger stores it."""
    if isinstance(spec, EverySpec):
        phase, jitter_s = phase % spec.every_s, jitter_s % spec.every_s
        return Schedule(spec_id, phase, jitter_s, (phase + jitter_s) % spec.every_s)
    phase = NOON + phase if isinstance(spec, AtSpec) else 0
    return Schedule(spec_id, phase, jitter_s, phase + jitter_s)


def asked(book: SpecBook, window: DueSpecs, table: list[Schedule]) -> Iterator[Fire]:
    """The planner's way: whole specs without jitter, ranges of due phases."""
    for whole in window.whole:
        for place, one in enumerate(table):
            if one.spec_id == whole.spec_id and one.jitter_offset_s == 0:
                yield Fire(place, Instant(whole.at_s, whole.at_s, whole.previous_s, whole.next_s))
    for due in window.ranges:
        for place, one in enumerate(table):
            if one.spec_id == due.spec_id and due.lo <= one.due_phase < due.hi:
                for instant in book.instants(due, one.due_phase, one.jitter_offset_s, window):
                    yield Fire(place, instant)


def expected(specs: list[Spec], table: list[Schedule], start_s: int, end_s: int) -> Iterator[Fire]:
    """By enumeration, schedule by schedule."""
    for place, one in enumerate(table):
        spec, jitter_s = specs[one.spec_id], one.jitter_offset_s
        for at in fires_between(spec, start_s - jitter_s, end_s - jitter_s, one.phase):
            earlier, later = previous_fire(spec, at, one.phase), next_fire(spec, at, one.phase)
            before_s = None if earlier is None else at - earlier
            after_s = None if later is None else later - at
            yield Fire(place, Instant(at + jitter_s, at, before_s, after_s))


def cron(expression: str, tz: str = "UTC") -> CronSpec:
    return parse_cron(expression, tz)[0]


def row(spec_id: int, spec: Spec, max_jitter_s: int = 0) -> SpecRow:
    return SpecRow(spec_id, spec.kind, spec.rule(), max_jitter_s)


crons = st.tuples(st.sampled_from(CRONS), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])).map(
    lambda pair: cron(*pair)
)
specs_of_all_kinds = st.lists(
    crons | st.sampled_from(INTERVALS).map(EverySpec) | st.just(AtSpec()), min_size=1, max_size=5
)
jitters = st.just(0) | st.integers(0, 3_600)
windows = st.tuples(st.integers(-20, 30), st.integers(0, 59), st.sampled_from([1, 59, 60, 61, 300])).map(
    lambda parts: (NOON + parts[0] * 60 + parts[1], NOON + parts[0] * 60 + parts[1] + parts[2])
)


@settings(max_examples=300, deadline=None)
@given(st.data(), specs_of_all_kinds)
def test_windows_in_any_order_with_specs_and_jitter_that_appear_late(data: st.DataObject, specs: list[Spec]) -> None:
    book, table = SpecBook(), list[Schedule]()
    known: dict[int, int] = {}  # spec -> largest jitter so far
    for _ in range(data.draw(st.integers(1, 6))):
        for spec_id in data.draw(st.sets(st.integers(0, len(specs) - 1), max_size=3)):
            spec = specs[spec_id]
            new = schedule(spec_id, spec, data.draw(st.integers(0, 90_000)), data.draw(jitters))
            if spec_id not in known or new.jitter_offset_s > known[spec_id]:
                known[spec_id] = max(new.jitter_offset_s, known.get(spec_id, 0))
                book.learn([row(spec_id, spec, known[spec_id])])
            table.append(new)
        start_s, end_s = data.draw(windows)
        found = sorted(asked(book, book.due(start_s, end_s), table), key=repr)
        assert found == sorted(expected(specs, table, start_s, end_s), key=repr)


@settings(max_examples=150, deadline=None)
@given(crons, st.integers(0, 3_600), st.integers(-5_000, 5_000), st.integers(1, 4_000))
def test_occurrences_of_one_schedule(spec: CronSpec, jitter_s: int, start: int, length: int) -> None:
    book = SpecBook()
    book.learn([row(3, spec, jitter_s)])
    found = book.occurrences(3, 0, jitter_s, NOON + start, NOON + start + length)
    table = [Schedule(0, 0, jitter_s, jitter_s)]
    assert found == [fire.instant for fire in expected([spec], table, NOON + start, NOON + start + length)]


def test_the_spec_of_a_schedule_that_is_not_known_yet_has_no_occurrence() -> None:
    assert SpecBook().occurrences(1, 0, 0, NOON, NOON + 60) == []
    assert SpecBook().spec(1) is None


def test_minute_after_minute_costs_what_fires_not_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cron that fires once a year is looked at once."""
    book = SpecBook()
    book.learn([row(1, cron("* * * * *")), *(row(i, cron("0 0 1 1 *")) for i in range(2, 50))])
    book.due(NOON, NOON + 60)
    calls: list[int] = []

    def counted(spec: Spec, after_s: int) -> int | None:
        calls.append(after_s)
        return next_fire(spec, after_s)

    monkeypatch.setattr(agenda, "next_fire", counted)
    for minute in range(1, 6):
        book.due(NOON + minute * 60, NOON + minute * 60 + 60)
    assert len(calls) == 5


def test_only_a_few_computed_minutes_are_kept() -> None:
    book = SpecBook()
    book.learn([row(1, cron("* * * * *"))])
    for minute in range(100):
        assert len(book.due(NOON + minute * 60, NOON + minute * 60 + 60).whole) == 1
    assert len(book._agenda._minutes) <= 11


UNREADABLE = [
    SpecRow(1, "cron", '{"kind":"moon"}', 0),
    SpecRow(2, "cron", "no json", 9),
    SpecRow(4, "every", cron("* * * * *").rule(), 0),
    SpecRow(5, "every", EverySpec(2**31).rule(), 0),
    SpecRow(6, "cron", "x" * 2_000, 0),
]
# It loads: 1.0 is as good as 1 where weekdays are compared. Its days are fractions, in December.
FRACTIONS = (
    cron("* * * 12 *")
    .rule()
    .replace('"days":"both"', '"days":"either"')
    .replace('"dow":[0,1,2,3,4,5,6]', '"dow":[],"dow_nth":[[1.0,2]]')
)
FRACTIONS = re.sub(r'"dom":\[[0-9,]*\]', '"dom":[]', FRACTIONS)


def test_a_rule_that_cannot_be_read_is_set_aside_and_the_rest_go_on() -> None:
    book = SpecBook()
    book.learn([*UNREADABLE, row(3, EverySpec(60))])
    assert len(book) == 1
    assert [due.spec_id for due in book.due(NOON, NOON + 60).ranges] == [3]
    assert set(book.errors) == {unreadable.spec_id for unreadable in UNREADABLE}
    assert book.errors[1].startswith("TimingError: expected a stored rule")
    assert all(len(error) <= 500 for error in book.errors.values())
    book.set_aside(3, ValueError("x" * 1_000))
    assert book.errors[3] == f"ValueError: {'x' * 488}"
    assert book.due(NOON, NOON + 60).ranges == []


@pytest.mark.parametrize("jitter_s", [0, 60])
@pytest.mark.parametrize("first", [True, False])
def test_a_rule_that_fails_when_it_is_computed_is_set_aside_and_the_rest_go_on(jitter_s: int, first: bool) -> None:
    """Whether it is known from the start, or learned when minutes were computed already."""
    december = int(datetime(2026, 12, 14, tzinfo=UTC).timestamp())  # the second Monday, and the day before
    book, good = SpecBook(), [row(1, cron("* * * * *")), row(2, cron("* * * * *", "Asia/Kathmandu"), 1)]
    bad = SpecRow(9, "cron", FRACTIONS, jitter_s)
    book.learn([bad, *good] if first else good)
    whole = [due.spec_id for due in book.due(december - 60, december).whole]
    assert (9 in book.errors) == (first and not jitter_s)
    if not first:
        book.learn([bad])
    window = book.due(december - 60, december + 120)
    assert {due.spec_id for due in window.whole} == {1}
    assert len(window.whole) == 3
    assert {due.spec_id for due in window.ranges} == {2}
    assert whole == [1]
    assert "TypeError" in book.errors[9]
    assert (book.spec(9), book.occurrences(9, 0, 0, december, december + 60)) == (None, [])


@pytest.mark.parametrize(("asked", "shown"), [((2, 23, 58), True), ((2, 23, 59), False), ((1, 0, 0), False)])
def test_a_rule_that_fails_in_some_minutes_only_is_set_aside_there(asked: tuple[int, int, int], shown: bool) -> None:
    """At the end of its whole days, on the way on; and at their beginning, when an earlier minute is asked for."""
    book = SpecBook()
    bad = SpecRow(9, "cron", FRACTIONS.replace('"dom":[]', '"dom":[1,2]'), 0)
    book.learn([bad, row(1, cron("* * * * *"))])
    first = int(datetime(2026, 12, 2, 23, 57, tzinfo=UTC).timestamp())
    assert {due.spec_id for due in book.due(first, first + 60).whole} == {1, 9}
    day, hour, minute = asked
    start = int(datetime(2026, 12, day, hour, minute, tzinfo=UTC).timestamp())
    assert {due.spec_id for due in book.due(start, start + 60).whole} == ({1, 9} if shown else {1})
    assert (9 in book.errors) != shown


@pytest.mark.parametrize("ask", ["occurrences", "fires", "previous", "next"])
def test_whatever_is_asked_of_it_first_sets_it_aside(ask: str) -> None:
    book = SpecBook()
    book.learn([SpecRow(9, "cron", FRACTIONS, 0)])
    year = (NOON, NOON + 366 * 86_400)
    answers = {
        "occurrences": lambda: book.occurrences(9, 0, 0, *year) == [],
        "fires": lambda: book.fires(9, *year, 0) == [],
        "previous": lambda: book.previous(9, NOON, 0) is None,
        "next": lambda: book.next(9, NOON, 0) is None,
    }
    assert answers[ask]()
    assert list(book.errors) == [9]


def test_a_rule_that_was_set_aside_and_is_mended_counts_again_once() -> None:
    book = SpecBook()
    book.learn([row(1, cron("* * * * *")), row(2, EverySpec(60))])
    book.due(NOON, NOON + 180)
    for spec_id in (1, 2):
        book.set_aside(spec_id, ValueError("tried by hand"))
    book.learn([row(1, cron("*/2 * * * *")), row(2, EverySpec(60))])
    window = book.due(NOON, NOON + 180)
    assert [due.at_s for due in window.whole] == [NOON, NOON + 120]
    assert [due.spec_id for due in window.ranges] == [2]
    assert book.errors == {}


def test_learning_twice_adds_nothing() -> None:
    book = SpecBook()
    minutely = row(1, cron("* * * * *"))
    for _ in range(3):
        book.learn([minutely, row(2, EverySpec(5))])
        window = book.due(NOON, NOON + 60)
        assert [due.spec_id for due in window.whole] == [1]
        assert [due.spec_id for due in window.ranges] == [2]
