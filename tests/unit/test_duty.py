"""The loop around a service: what ends it, what it survives, what cuts its sleep short, what it logs."""

import asyncio
import logging

import psycopg
import pytest
from psycopg.errors import CheckViolation
from redis.exceptions import ConnectionError as RedisGone

from bucketd.scheduler import duty
from bucketd.scheduler.duty import first_of, repeat
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
    await repeat("plan", turns, turns.stop)
    assert turns.turns == 6
    assert caplog.text.count("duty_failing duty=plan") == 1
    assert caplog.text.count("duty_recovered duty=plan") == 1
    assert "failures=3" in caplog.text


async def test_a_defect_ends_the_loop() -> None:
    turns = Turns(0.0, ZeroDivisionError(), 0.0)
    with pytest.raises(ZeroDivisionError):
        await repeat("plan", turns, turns.stop)
    assert turns.turns == 2


async def test_wake_and_stop_cut_the_sleep_short() -> None:
    wake = asyncio.Event()
    turns = Turns(3_600.0, 3_600.0, 3_600.0)
    loop = asyncio.create_task(repeat("plan", turns, turns.stop, wake))
    await wait_until(lambda: turns.turns == 1, 5, "the first turn")
    wake.set()
    await wait_until(lambda: turns.turns == 2, 5, "the turn after the wake")
    turns.stop.set()
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

    await asyncio.gather(repeat("drain", turns, turns.stop), other())
    assert others > 40, "each turn gave them one"


async def test_the_first_of_some_events_leaves_no_task_behind() -> None:
    one, other = asyncio.Event(), asyncio.Event()
    before = asyncio.all_tasks()
    await first_of(0.001, one, other)
    other.set()
    await first_of(3_600, one, other)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
