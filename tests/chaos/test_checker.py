"""The checker sees what it is there for: each breach planted in evidence of a play that was well, made by hand."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tests.chaos.checker import Facts, Verdict, judge
from tests.chaos.costs import MB, kept, unbounded
from tests.chaos.journal import Life
from tests.chaos.oracle import Expected
from tests.chaos.recovery import waits, worst
from tests.chaos.watch import Cost, Look, Mark, Vitals
from tests.support.edit_model import History, Span, Timing
from tests.support.evidence import Call, Key, Row

AT = 1_000_000.0
UNTIL = 1_000_060
ID = UUID("00000000-0000-4000-8000-000000000003")
KEY: Key = ("default/job", ID.hex)


def row(at: float = AT, **changes: object) -> Row:
    whole = Row(KEY, at, 0, "succeeded", "fire", 1, 0, None, at + 0.01, at + 0.1, False, False, ())
    return replace(whole, **changes)  # type: ignore[arg-type]


def call(at: float = AT, attempt: int = 1, late: float = 0.02) -> Call:
    return Call(f"run-{at}", KEY, at, attempt, at + late)


def life(**options: object) -> Life:
    return Life(("default", "job"), History(ID, Timing(every_s=5), Span(AT - 100, AT - 100)), dict(options))


def expected(*sure: float, either: tuple[float, ...] = (), **options: object) -> dict[Key, Expected]:
    due_s = {at: at for at in (*sure, *either)}
    return {KEY: Expected(life(**options), 3, frozenset(sure), frozenset(either), due_s)}


def look(at_s: float, settled_s: float, accounted: int, epoch: int = 1) -> Look:
    marks = [Mark(epoch, settled_s, accounted if partition == 3 else 0) for partition in range(256)]
    return Look(at_s, at_s, marks)


def facts(rows: list[Row], calls: list[Call], wanted: dict[Key, Expected] | None = None, **more: object) -> Facts:
    whole = Facts(wanted or expected(AT), rows, calls, [look(AT + 60, AT + 55, 1)], [], UNTIL)
    return replace(whole, **more)  # type: ignore[arg-type]


def blamed(verdict: Verdict) -> set[str]:
    """Kinds of complaints that there are."""
    return {kind for kind, found in vars(verdict).items() if found}


TROUBLE = [Span(AT - 1, AT + 50)]
ONE = ([row()], [call()])
TWO = expected(AT, AT + 5)
SOUND = {
    "a success": facts(*ONE),
    "a lost attempt in trouble": facts([row(attempt=2)], [call(attempt=2)], troubled=TROUBLE),
    "a count in trouble": facts([row(AT + 5, missed=1)], [call(AT + 5)], TWO, looks=[look(AT + 60, AT + 55, 2)], troubled=TROUBLE),
    "what may go either way": facts([], [], expected(either=(AT,)), looks=[]),
    "one cancelled by the next": facts(
        [row(status="cancelled", reason="overlap", finished=AT + 5.02), row(AT + 5)],
        [call(), call(AT + 5, late=0.03)],
        expected(AT, AT + 5, overlap="cancel_running"),
        looks=[],
    ),
    "a call of a lost history": facts(
        [row()], [call(late=0.01), call(late=0.05)], lost_commits=[Span(AT, AT + 0.02)]
    ),
    "a call whose result is lost": facts([row()], [call(late=0.01), call(late=0.05)], lost_commits=[Span(AT + 5, AT + 6)]),
    "one cancelled before its call": facts(
        [row(status="cancelled", reason="overlap", finished=AT + 5.02), row(AT + 5, finished=AT + 6)],
        [call(late=5.2), call(AT + 5, late=0.1)],
        expected(AT, AT + 5, overlap="cancel_running"),
        looks=[],
    ),
    "a call of a lost history that no row knows of": facts(
        [row(status="skipped", reason="misfire", attempt=0, started=None)], [call(late=0.01)],
        lost_commits=[Span(AT, AT + 0.02)], troubled=TROUBLE,
    ),
    "a watermark of another history": facts(
        *ONE, looks=[look(AT + 60, AT + 55, 1), look(AT + 62, AT + 50, 1)], lost_commits=[Span(AT + 60, AT + 61)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("sound", SOUND.values(), ids=SOUND)
def test_what_is_well_has_no_complaint(sound: Facts) -> None:
    assert judge(sound).complaints == []


OTHERS: list[tuple[str, Facts, str]] = [
    ("counted in an older row", facts([row(missed=1)], [call()], TWO, troubled=TROUBLE), "I3 "),
    ("counted too early", facts([row(AT + 5, missed=1), row(AT + 10)], [call(AT + 5), call(AT + 10)],
        expected(AT + 5, AT + 7, AT + 10), looks=[], troubled=TROUBLE), "I3 1 counted up to"),
    ("counted where all catch up", facts([row(AT + 5, missed=1)], [call(AT + 5)], expected(AT, AT + 5, misfire="catch_up"),
        looks=[], troubled=TROUBLE), "I3 1 counted where all catch up"),
    ("missed in peace", facts([row(AT + 5, missed=1)], [call(AT + 5)], TWO, looks=[]), "I3 missed, though nothing was wrong"),
    ("skipped in peace", facts([row(status="skipped", reason="misfire", attempt=0, started=None)], []), "I3 missed, though"),
    ("triggered by nobody", facts([row(), row(AT + 1.5, origin="trigger")], [call(), call(AT + 1.5)]), "I3 1 triggered runs, expected 0"),
]  # fmt: skip
BREACHES: list[tuple[str, Facts, str]] = [
    ("an attempt skipped in peace", facts([row(attempt=2)], [call(attempt=2)]), "I2 attempts [1] neither called nor recorded"),
    ("an attempt beyond the row's", facts([row()], [call(attempt=3)]), "I2 attempts"),
    ("a ghost", facts([row(), row(AT + 1)], [call(), call(AT + 1)]), "I3 a row that nobody asked for"),
    ("a ghost's call", facts([row()], [call(), call(AT + 1)]), "I1 call without a row"),
    ("forgotten", facts([row(status="running", finished=None)], [call()]), "I7 neither final"),
    ("two at once", facts([row(finished=AT + 7), row(AT + 5)], [call(), call(AT + 5)], expected(AT, AT + 5, overlap="skip")),
        "I10 skip: called"),
    ("a lie of the watermark", facts(*ONE, looks=[look(AT + 60, AT + 55, 0)]), "I8 partition 3 says"),
    ("a watermark that goes back", facts(*ONE, looks=[look(AT + 60, AT + 55, 1), look(AT + 61, AT + 50, 1)]), "I8 partition 0 was"),
    ("an epoch that goes back", facts(*ONE, looks=[look(AT, AT - 5, 0, 3), look(AT + 1, AT - 5, 0, 2)]), "I9 the epoch"),
    ("another jitter", facts([row(jitter_s=4, started=AT + 4.1, finished=AT + 5)], [call(late=4.2)]), "due at"),
]  # fmt: skip


def test_a_loss_is_lost() -> None:
    verdict = judge(facts([], [], looks=[look(AT + 60, AT + 55, 0)]))
    assert [line[:9] for line in verdict.lost] == ["I3 1 of 1"]
    assert blamed(verdict) == {"lost", "others"}, "the watermark lies, too"


def test_a_double_is_doubled() -> None:
    verdict = judge(facts([row()], [call(), call(late=0.05)]))
    assert len(verdict.doubled) == 1
    assert blamed(verdict) == {"doubled"}
    late = judge(facts([row()], [call(), call(late=0.4)]))
    assert {line.split()[0] for line in late.doubled} == {"I1", "doubled:"}, "once more after its success, too"


@pytest.mark.parametrize("early", [facts([row(started=AT - 0.001)], [call()]), facts([row()], [call(late=-0.001)])])
def test_an_early_fire_is_early(early: Facts) -> None:
    verdict = judge(early)
    assert len(verdict.early) == 1
    assert blamed(verdict) == {"early"}


@pytest.mark.parametrize(("planted", "complaint"), [pytest.param(*rest, id=id) for id, *rest in BREACHES])
def test_another_breach_is_none_of_these(planted: Facts, complaint: str) -> None:
    verdict = judge(planted)
    assert any(line.startswith(complaint) for line in verdict.others), verdict.complaints
    assert blamed(verdict) == {"others"}


@pytest.mark.parametrize(("planted", "complaint"), [pytest.param(*rest, id=id) for id, *rest in OTHERS])
def test_a_breach_of_the_counts_is_a_loss(planted: Facts, complaint: str) -> None:
    verdict = judge(planted)
    assert any(line.startswith(complaint) for line in verdict.lost), verdict.complaints


@pytest.mark.parametrize("write", ["pause", "delete"])
def test_a_start_after_a_pause_or_a_delete(write: str) -> None:
    wanted = expected(either=(AT,))
    history = wanted[KEY].life.history
    getattr(history, write)(Span(AT - 10, AT - 9))
    late = judge(facts(*ONE, wanted))
    assert any(line.startswith("I5 started 9.010 s after") for line in late.others), late.complaints
    history.pauses, history.deleted = [], Span(AT - 4, AT - 4)
    assert not judge(facts(*ONE, wanted)).complaints, "a statement that began before ends within its time-out"


def test_recovery_is_the_longest_wait_in_peace() -> None:
    wanted = expected(AT, AT + 5)
    rows = [row(started=AT + 30, finished=AT + 30), row(AT + 5, started=AT + 5, finished=AT + 5)]
    find: Callable[..., tuple[float, object]] = lambda *faults: worst(waits(wanted, rows, [], UNTIL), faults)  # noqa: E731
    assert find()[0] == 30
    assert find(Span(AT - 1, AT + 21))[0] == 9, "from the end of the fault"
    assert find(Span(AT + 12, AT + 21))[0] == 12, "before the fault it should have been done as well"
    assert find(Span(AT - 1, AT + 8), Span(AT + 11, AT + 26))[0] == 4
    counted = [row(AT + 5, started=AT + 40, finished=AT + 41, missed=1)]
    assert worst(waits(wanted, counted, [], UNTIL), [])[0] == 40, "a count is where its row is"
    assert worst(waits(expected(AT, overlap="skip"), rows, [], UNTIL), []) == (0.0, None)


def test_costs() -> None:
    small, fat = Vitals(80 * MB, 30, 5), Vitals(900 * MB, 30, 5)
    assert list(unbounded([Cost(AT, {1: small}, MB, 10)])) == []
    found = [*unbounded([Cost(AT, {1: fat}, MB, 10)]), *unbounded([Cost(AT, {1: small}, 999 * MB, 10**6)])]
    assert [line[:7] for line in found] == ["I12 a p", "I12 Red", "I12 100"]
    assert list(kept({1: small}, {1: small, 2: small})) == []
    found = [*kept({1: small}, {1: Vitals(MB, 50, 30), 2: Vitals(MB, 60, 5)})]
    assert [line.split(" keeps ")[0] for line in found] == ["I13 process 1", "I13 process 1", "I13 process 2"]
