"""The loop around a service: what ends it, what it survives, what cuts its sleep short, what it logs."""

import asyncio
import logging

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import CheckViolation
from redis.exceptions import ConnectionError as RedisGone

from bucketd.scheduler import duty
from bucketd.scheduler.duty import BEAT_S, on_beat, pause, repeat
from tests.support.waiting import wait_until


class Turns:
    """A service that raises or returns what it was given, then stops its loop."""

    def __init__(self, *outcomes: float | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.stop = asyncio.Event()
        self.turns = 0

    async def __call__(self) -> float:
        self.turns += 1
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.stop.set()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty, "BACKOFF_MAX_S", 0.001)


@pytest.mark.parametrize(
    "error",
    [RedisGone("gone"), psycopg.OperationalError("gone"), OSError("gone"), TimeoutError(), CheckViolation("refused")],
)
async def test_a_store_that_is_away_or_refuses_is_logged_once_and_once_when_it_is_back(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bucketd")
    turns = Turns(0.0, error, error, error, 0.0, 0.0)
    await repeat("plan", turns, turns.stop, asyncio.Event())
    assert turns.turns == 6
    assert caplog.text.count("duty_failing duty=plan") == 1
    assert caplog.text.count("duty_recovered duty=plan") == 1
    assert "failures=3" in caplog.text


async def test_a_defect_ends_the_loop() -> None:
    turns = Turns(0.0, ZeroDivisionError(), 0.0)
    with pytest.raises(ZeroDivisionError):
        await repeat("plan", turns, turns.stop, asyncio.Event())
    assert turns.turns == 2


async def test_wake_and_stop_cut_the_sleep_short() -> None:
    wake = asyncio.Event()
    turns = Turns(3_600.0, 3_600.0, 3_600.0)
    loop = asyncio.create_task(repeat("plan", turns, turns.stop, wake))
    await wait_until(lambda: turns.turns == 1, 5, "the first turn")
    wake.set()
    await wait_until(lambda: turns.turns == 2, 5, "the turn after the wake")
    turns.stop.set()
    wake.set()
    await asyncio.wait_for(loop, 5)
    assert turns.turns == 2


async def test_a_wake_during_a_turn_is_not_lost() -> None:
    wake, stop, turns = asyncio.Event(), asyncio.Event(), 0

    async def run_once() -> float:
        nonlocal turns
        turns += 1
        if turns == 1:
            wake.set()
        else:
            stop.set()
            wake.set()
        return 3_600.0

    async with asyncio.timeout(5):
        await repeat("plan", run_once, stop, wake)
    assert turns == 2


async def test_a_busy_service_lets_others_run() -> None:
    turns = Turns(*[0.0] * 50)
    others = 0

    async def other() -> None:
        nonlocal others
        while not turns.stop.is_set():
            others += 1
            await asyncio.sleep(0)

    await asyncio.gather(repeat("drain", turns, turns.stop, asyncio.Event()), other())
    assert others > 40, "each turn gave them one"


async def test_a_pause_ends_with_its_event_or_its_time() -> None:
    wake = asyncio.Event()
    before = asyncio.all_tasks()
    await pause(0.001, wake)
    wake.set()
    async with asyncio.timeout(5):
        await pause(3_600, wake)
    assert asyncio.all_tasks() == before


@given(st.floats(BEAT_S, 600), st.floats(0, 1e7))
def test_pauses_end_on_one_beat_near_their_time(pause_s: float, now_s: float) -> None:
    ends = now_s + on_beat(pause_s, now_s)
    assert abs(ends - now_s - pause_s) <= BEAT_S / 2 + 1e-3
    other = now_s + 0.1 + on_beat(pause_s, now_s + 0.1)
    beats = (other - ends) / BEAT_S
    assert abs(beats - round(beats)) < 1e-2


def test_a_timer_that_is_early_does_not_repeat_the_beat() -> None:
    beat = 1_000.0 + on_beat(BEAT_S, 1_000.0)
    assert on_beat(BEAT_S, beat - 0.002) > BEAT_S * 0.9


def test_a_pause_below_a_beat_stays() -> None:
    assert on_beat(0.05, 1_000.0) == 0.05
