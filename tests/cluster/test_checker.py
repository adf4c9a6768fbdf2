"""The checker sees what it is there for: each invariant broken on purpose, in evidence made by hand."""

from dataclasses import replace

import pytest

from tests.support.evidence import Call, Evidence, Key, Row
from tests.support.invariants import check

KEY: Key = ("default", "job")
AT = 1_000_000.0


def row(at: float = AT, **changes: object) -> Row:
    whole = Row(KEY, at, 0, "succeeded", "fire", 1, 0, None, at + 0.01, at + 0.1, False, False, ())
    return replace(whole, **changes)  # type: ignore[arg-type]


def call(at: float = AT, attempt: int = 1, late: float = 0.02) -> Call:
    return Call(f"run-{at}", KEY, at, attempt, at + late)


def evidence(rows: list[Row], calls: list[Call], *due: float) -> Evidence:
    return Evidence({KEY: set(due or (AT,))}, rows, calls, {})


def test_a_plain_success() -> None:
    check(evidence([row()], [call()]))


def test_an_attempt_lost_with_its_runner() -> None:
    check(evidence([row(attempt=2)], [call(), call(attempt=2, late=0.05)]))
    check(evidence([row(attempt=2)], [call(attempt=2)]))


def test_a_count_instead_of_rows() -> None:
    check(evidence([row(AT + 10, missed=2)], [call(AT + 10)], AT, AT + 5, AT + 10))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (evidence([], []), "I3 1 of 1"),
        (evidence([row()], [call(), call(late=0.05)]), "I1 called 2 times"),
        (evidence([], [call()]), "I1 call without a row"),
        (evidence([row(attempt=2)], [call(attempt=2), call(attempt=1, late=0.05)]), "I2 attempts"),
        (evidence([row()], []), "I2 succeeded in attempt 1"),
        (evidence([row()], [call(attempt=3)]), "I2 attempts"),
        (evidence([row(attempt=3, errors=(1, 1))], [call(attempt=3)]), "I2 failures"),
        (evidence([row(), row(AT + 5)], [call(), call(AT + 5)]), "I3 a row that nobody asked for"),
        (evidence([row(missed=1)], [call()]), "I3 0 of 1"),
        (evidence([row(missed=1)], [call()], AT, AT + 5), "I3 counted in"),
        (evidence([row(AT + 5)], [call(AT + 5)], AT, AT + 5), "I3 1 of 2"),
        (evidence([row(started=AT - 0.001)], [call()]), "I4 started"),
        (evidence([row(jitter_s=1, started=AT + 1)], [call()]), "I4 called"),
        (evidence([row(status="running", finished=None)], [call()]), "I7 neither"),
        (evidence([row()], [call(), call(attempt=1, late=0.2)]), "doubled"),
    ],
)
def test_a_breach(broken: Evidence, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(broken)
