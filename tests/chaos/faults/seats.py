"""Somebody takes a seat who is not like the others: by another clock, on another machine, of another release."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tests.chaos.stage import Seat, Stage
from tests.support.waiting import wait_until

SERVES = {"node": "scheduler_started", "runner": "runner_started"}
SERVES_S = 20.0


async def replace(stage: Stage, place: str, env: Mapping[str, str], under: tuple[str, ...] = ()) -> Seat:
    """kill -9 of who sits there; his successor has this environment, and no later one has. Returns when he serves, or after SERVES_S:
    a store may be away."""
    seat = stage.seats[place]
    if seat.process is not None:
        seat.process.kill9()
    before, seat.env, seat.under = seat.env, {**seat.env, **env}, under
    try:
        await stage.start(place)
    finally:
        seat.env, seat.under = before, ()
    process, sign = seat.process, SERVES[place.split()[0]]
    assert process is not None
    with suppress(AssertionError):
        await wait_until(lambda: sign in process.output() or not seat.alive, SERVES_S, f"{place} to serve")
    return seat
