"""A clock that is never ahead of Postgres's, whatever the network does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.store import clock as module
from bucketd.store.clock import Clock

delays = st.floats(0, 5, allow_nan=False)
readings = st.lists(st.tuples(delays, delays, st.floats(0.001, 120)), min_size=1, max_size=12)


@given(readings, st.floats(-1e6, 1e6))
def test_never_ahead_of_postgres(steps: list[tuple[float, float, float]], difference_s: float) -> None:
    """Each reading takes `there` seconds to Postgres and `back` seconds to come back; between readings time passes."""
    clock, at = Clock(), 1_000.0
    with pytest.MonkeyPatch.context() as patch:
        for there, back, pause in steps:
            answered_at = at + there + back
            clock.observe(at + there + difference_s, at, answered_at)
            for later in (answered_at, answered_at + pause):
                patch.setattr(module, "monotonic", lambda later=later: later)
                assert clock.now() <= later + difference_s + 1e-6
            at = answered_at + pause


def test_a_slow_reading_is_ignored_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.observe(1_000.0, 10.0, 10.001)
    monkeypatch.setattr(module, "monotonic", lambda: 20.0)
    good = clock.now()
    clock.observe(1_009.0, 19.0, 20.0)  # a second on its way: knows less
    assert clock.now() == good
    clock.observe(1_060.0, 70.5, 71.5)  # but after a minute better than an offset that may have drifted
    monkeypatch.setattr(module, "monotonic", lambda: 71.5)
    assert clock.now() == 1_060.0


def test_asking_before_the_first_reading_is_an_error() -> None:
    clock = Clock()
    assert not clock.synchronised
    with pytest.raises(RuntimeError, match="expected a reading"):
        clock.now()
    clock.observe(5.0, 1.0, 1.1)
    assert clock.synchronised


def test_skew_is_how_far_this_machine_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.observe(1_000.0, 10.0, 10.0)
    monkeypatch.setattr(module, "monotonic", lambda: 12.0)
    monkeypatch.setattr(module, "wall", lambda: 1_005.0)
    assert clock.skew_s() == pytest.approx(3.0)


def test_monotonic_and_wall_run() -> None:
    before = module.monotonic()
    assert module.monotonic() >= before
    assert module.utc(module.wall()).utcoffset() is not None
