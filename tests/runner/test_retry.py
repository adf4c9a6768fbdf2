"""Pure: what an answer means and when the next attempt is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.runner.call import Answer, without_query
from bucketd.runner.result import failure
from bucketd.runner.retry import Class, classify, retry_after_s
from bucketd.store.retry import Own, Policy, delay_s, error_text
from bucketd.store.runners import CallTarget

NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, Class.SUCCESS) for status in (200, 202, 204, 299)),
        *((status, Class.RETRY) for status in (408, 425, 429, 500, 503, 599)),
        *((status, Class.REJECTED) for status in (101, 301, 304, 400, 404, 410, 600)),
    ],
)
def test_classes(status: int, expected: Class) -> None:
    assert classify(status) is expected


@given(
    attempt=st.integers(1, 32_000),
    base_s=st.floats(0, 1e4),
    cap_s=st.floats(0, 1e5),
    draw=st.floats(0, 1, exclude_max=True),
    after_s=st.none() | st.floats(0, 1e9),
)
def test_a_delay_stays_in_its_bounds(
    attempt: int, base_s: float, cap_s: float, draw: float, after_s: float | None
) -> None:
    found = delay_s(attempt, base_s=base_s, cap_s=cap_s, draw=draw, retry_after_s=after_s)
    assert 0 <= found <= cap_s
    assert found >= min(after_s or 0, cap_s)
    if not after_s:
        assert found <= base_s * 2.0 ** min(attempt - 1, 60)


@given(
    targets=st.builds(Policy, st.integers(1, 100), st.floats(0, 1e4), st.floats(0, 1e5)),
    own=st.builds(Own, st.none() | st.integers(1, 100), st.none() | st.floats(0, 1e4), st.none() | st.floats(0, 1e5)),
    attempt=st.integers(1, 101),
    draw=st.floats(0, 1, exclude_max=True),
    after_s=st.none() | st.floats(0, 1e9),
)
def test_what_a_schedule_says_goes_before_its_target(
    targets: Policy, own: Own, attempt: int, draw: float, after_s: float | None
) -> None:
    most, base_s, cap_s = (said if said is not None else other for said, other in zip(own, targets, strict=True))
    found = targets.with_own(own).next_s(attempt, draw, after_s)
    assert (found is None) == (attempt >= most)
    if found is not None:
        assert 0 <= found <= cap_s
        assert found >= min(after_s or 0, cap_s)
        assert after_s or found <= base_s * 2.0 ** min(attempt - 1, 60)
    assert targets.with_own(None) == targets == targets.with_own(Own(None, None, None))


def test_full_jitter_doubles_its_range() -> None:
    spans = [delay_s(n, base_s=10, cap_s=100, draw=0.5) for n in range(1, 7)]
    assert spans == [5, 10, 20, 40, 50, 50]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, None) for text in (None, "", "-5", "1.5", "soon", "٣")),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("9" * 400, 9_999_999_999.0),
        ("Mon, 30 Nov 2026 09:02:00 GMT", 120.0),
        ("Mon, 30 Nov 2026 08:00:00 GMT", 0.0),
    ],
)
def test_retry_after(text: str | None, expected: float | None) -> None:
    assert retry_after_s(text, NOW) == expected


@given(st.text())
def test_retry_after_never_raises(text: str) -> None:
    found = retry_after_s(text, NOW)
    assert found is None or found >= 0


@given(st.timedeltas(timedelta(0), timedelta(days=365)))
def test_retry_after_reads_http_dates(ahead: timedelta) -> None:
    ahead = timedelta(seconds=int(ahead.total_seconds()))
    assert retry_after_s(f"{NOW + ahead:%a, %d %b %Y %H:%M:%S} GMT", NOW) == ahead.total_seconds()


def test_an_error_can_stand_in_a_row() -> None:
    assert error_text("a\x00b") == "ab"
    assert len(error_text("x" * 10_000)) == 1_100


TARGET = CallTarget(
    1, 1, "t", "http://h/", {}, 5.0, 30.0, 3, 10.0, 100.0, 1, 0, False, "envelope", None, None, None
)


def test_what_a_failure_means_for_its_run() -> None:
    assert failure(1, TARGET, Answer(500, "e"), 0.5).delay_s == 5.0
    assert failure(2, TARGET, Answer(None, "e"), 0.5).delay_s == 10.0
    assert failure(1, TARGET, Answer(429, "e", 50.0), 0.5).delay_s == 50.0
    assert (failure(3, TARGET, Answer(500, "e"), 0.5).delay_s, failure(3, TARGET, Answer(500), 0.5).reason) == (
        None,
        "attempts",
    )
    assert failure(1, TARGET, Answer(404, "e"), 0.5).reason == "rejected"
    assert failure(1, TARGET, Answer(None, "e", buildable=False), 0.5).reason == "rejected"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("400, message='no', url='https://h/p?token=abc&b=1'", "400, message='no', url='https://h/p?***'"),
        ("ClientConnectorError: h:443: refused?", "ClientConnectorError: h:443: refused?"),
        ("https://h/p and http://g/q?key=%2Fx then", "https://h/p and http://g/q?*** then"),
    ],
)
def test_a_failures_text_has_no_query(text: str, found: str) -> None:
    assert without_query(text) == found
