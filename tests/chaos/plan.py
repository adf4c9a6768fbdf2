"""From a seed to what goes wrong, when, where and for how long: drawn before anything starts, so that it can be printed and repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos.fault import Fault, Kind, Shape

AT_ONCE = 2  # faults at the same time, at most
PAUSE_S = (1.0, 9.0)  # between the injections of two
APART_S = 2.0  # between two faults of the same place


@dataclass(frozen=True, slots=True)
class Event:
    """A fault, and when it is injected, in seconds after the begin of the play."""

    at_s: float
    kind: Kind
    fault: Fault

    @property
    def until_s(self) -> float:
        """When it heals, but for what injecting it takes."""
        return self.at_s + self.fault.lasts_s

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.kind.name:<40} {self.fault.place:<24} {self.fault.lasts_s:5.1f} s"


def draw(
    seed: int, kinds: Sequence[Kind], shape: Shape, *, from_s: float, until_s: float, hurry: float = 1.0
) -> list[Event]:
    """Every kind once, in an order that is drawn, before any comes again (but for those that last too long towards the end); all
    heal before `until_s`. `hurry`: shorter pauses."""
    random = Random(seed)
    events = list(_at_midnight(random, kinds, shape))
    at_s = from_s
    for kind in _endless(random, [kind for kind in kinds if kind.before_midnight_s is None]):
        fault = kind.draw(random, shape)
        start_s = _earliest(events, fault, at_s + random.uniform(*PAUSE_S) / hurry)
        if start_s + fault.lasts_s <= until_s:
            events.append(Event(start_s, kind, fault))
            at_s = start_s
        elif at_s + max(PAUSE_S) >= until_s:
            break
        else:
            at_s += 1.0  # so that there is an end if nothing fits any more
    return sorted(events, key=lambda event: event.at_s)


def _at_midnight(random: Random, kinds: Sequence[Kind], shape: Shape) -> Iterator[Event]:
    for kind in kinds:
        if kind.before_midnight_s is not None:
            yield Event(shape.midnight_s - kind.before_midnight_s, kind, kind.draw(random, shape))


def _endless(random: Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    while True:
        yield from random.sample(list(kinds), len(kinds))


def _earliest(events: Sequence[Event], fault: Fault, at_s: float) -> float:
    """From `at_s` on, when its places are free and few others are active."""
    near = [event for event in events if event.until_s + APART_S >= at_s]
    for event in sorted(near, key=lambda event: event.until_s):
        clash = bool(event.fault.hits & fault.hits)
        meets = event.at_s - APART_S * clash <= at_s + fault.lasts_s and at_s <= event.until_s + APART_S * clash
        active = sum(other.at_s <= at_s < other.until_s for other in near)
        if meets and (clash or active >= AT_ONCE):
            at_s = event.until_s + APART_S * clash
    return at_s
