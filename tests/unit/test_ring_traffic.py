"""What a node measures: fires a minute over whole slots, lateness of the last batches, and nothing of what it no longer owns."""

from hypothesis import given
from hypothesis import strategies as st

from bucketd.scheduler.traffic import SLOT_S, WINDOW_S, Traffic

START = 5_003.0


def rate(traffic: Traffic, now_s: float) -> float:
    (load,) = traffic.loads(now_s)
    return load.per_min


@given(st.floats(0, 60), st.floats(0, 59), st.integers(1, 1_000))
def test_crons_of_whole_minutes_count_as_often_as_they_fire(since: float, phase: float, fires: int) -> None:
    """Looked at at any instant, once a window was measured: five minutes hold five of them, never four or six."""
    traffic = Traffic()
    traffic.own([7], START - since)
    for minute in range(12):
        traffic.drained(7, fires, 5, START + 60 * minute)
    assert rate(traffic, START + 11 * 60 + phase) == fires


def test_an_even_flow_from_the_beginning_on() -> None:
    traffic = Traffic()
    traffic.own([7], START)
    for second in range(1, 1_000):
        traffic.drained(7, 3, None, START + second)
        assert second < 6 or 150 <= rate(traffic, START + second + 0.5) <= 181, second
    assert rate(traffic, START + 1_000 + 2 * SLOT_S) < 180
    assert rate(traffic, START + 1_000 + WINDOW_S + SLOT_S) == 0


def test_lateness_is_that_of_the_last_minutes() -> None:
    traffic = Traffic()
    assert traffic.lateness(START) is None
    traffic.drained(1, 1, 40, START)
    traffic.drained(1, 1, None, START)
    traffic.drained(2, 1, 10, START + 5)
    traffic.drained(2, 1, 900, START + 6)
    assert traffic.lateness(START + 7) == (40, 900)
    assert [(load.partition, load.late_max_ms) for load in traffic.loads(START + 7)] == [(1, 40), (2, 900)]
    assert traffic.lateness(START + WINDOW_S + 2) == (10, 900)
    assert traffic.lateness(START + WINDOW_S + 20) is None


def test_a_new_owner_goes_on_with_what_the_former_one_measured() -> None:
    traffic = Traffic()
    traffic.inherit(7, 60.0, 120, START)
    traffic.own([7], START)
    (load,) = traffic.loads(START)
    assert (load.per_min, load.measured_s) == (60.0, 123)
    for second in range(1, 100):  # it has become twice as busy
        traffic.drained(7, 2, None, START + second)
        assert 58 <= rate(traffic, START + second) <= 90  # 120 s of 60 and 100 s of 120, at most
    assert rate(traffic, START + 99) > 80
    traffic.inherit(7, 60.0, 5, START + 100)
    assert rate(traffic, START + 101) == 0, "less than a slot is nothing"


def test_what_is_given_up_is_forgotten_and_begins_anew() -> None:
    traffic = Traffic()
    traffic.own([1, 2], START)
    traffic.drained(1, 60, 5, START + 30)
    traffic.own([2, 3], START + 40)
    assert [(load.partition, load.measured_s) for load in traffic.loads(START + 50)] == [(2, 50), (3, 10)]
    traffic.own([1, 2, 3], START + 60)
    assert [load.per_min for load in traffic.loads(START + 70)] == [0, 0, 0]
