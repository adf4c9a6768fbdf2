"""What has to become of every schedule of a play, from the journal of writes alone.

Instants come from tests/support/edit_model.py, which walks minutes and multiples and shares no code with the engine. A pause or a
delete drops what is due and not yet decided: what a watermark was seen to cover before it was decided by then. All else is certain.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.chaos.journal import Life
from tests.chaos.watch import Look
from tests.support.edit_model import Fate, Span
from tests.support.evidence import Key

THE_END_S = 1e12  # after everything


@dataclass(frozen=True)
class Expected:
    """Of one schedule: instants that must have a row or be counted, those that may, and the policies that its rows must follow."""

    life: Life
    partition: int
    sure: frozenset[float]
    either: frozenset[float]
    due_s: dict[float, float] = field(default_factory=dict)  # by instant, where only one is possible

    @property
    def misfire(self) -> str:
        """What happens to its late occurrences, as last put."""
        return str(self.life.options.get("misfire", "run_once"))

    @property
    def overlap(self) -> str:
        """What happens when its runs meet."""
        return str(self.life.options.get("overlap", "allow"))


class Decided:
    """When each partition was first seen to be settled through an instant."""

    def __init__(self, looks: Iterable[Look], lost: Sequence[Span] = ()) -> None:
        """`lost`: what was seen inside these may not be so any more."""
        self._steps: list[list[tuple[float, float]]] = [[] for _ in range(256)]
        for look in looks:
            if any(span.begin_s <= look.ended_s and look.began_s <= span.end_s for span in lost):
                continue
            for steps, mark in zip(self._steps, look.marks, strict=True):
                if not steps or mark.settled_s > steps[-1][0]:
                    steps.append((mark.settled_s, look.ended_s))

    def by(self, partition: int, due_s: int, stood: Span) -> float:
        """By when what was due then had its row or its count. Where it was not seen to have one: by the end, as I3 wants it."""
        steps = self._steps[partition]
        place = bisect_left(steps, (due_s, -math.inf))
        return steps[place][1] if place < len(steps) else THE_END_S


def expected(lives: Iterable[Life], decided: Decided, until_s: int) -> dict[Key, Expected]:
    """By key of the evidence, for all that is due before `until_s`."""
    found = {}
    for life in lives:
        partition = life.history.id.bytes[15]
        fates = life.history.fates(until_s, partial(decided.by, partition))
        found[evidence_key(life)] = _expected(life, partition, fates)
    return found


def evidence_key(life: Life) -> Key:
    """Names may come again after a delete; ids do not."""
    return "/".join(life.key), life.history.id.hex


def _expected(life: Life, partition: int, fates: dict[int, Fate]) -> Expected:
    starts_s, ends_s = _bound(life, "starts_at", -math.inf), _bound(life, "ends_at", math.inf)
    inside = {at: fate for at, fate in fates.items() if starts_s <= at < ends_s}
    due_s = {float(at): float(at + fate.offset_s) for at, fate in inside.items() if fate.offset_s is not None}
    sure = frozenset(float(at) for at, fate in inside.items() if fate.sure)
    return Expected(life, partition, sure, frozenset(map(float, inside)) - sure, due_s)


def _bound(life: Life, name: str, otherwise: float) -> float:
    bound = life.options.get(name)
    return otherwise if bound is None else float(bound.timestamp())
