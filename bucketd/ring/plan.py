"""A plan that levels measured load with few moves of partitions. Pure.

The level is the load of the busiest node over what its weight would give it: 1 is perfect, and the aim is 1.1 at most. As long as a node
is above the aim, the busiest one gives a partition to the node with most room: if one partition is all that is too much, the
smallest such one, else the largest that fits. Where none fits without lifting its taker above the aim, the move that leaves the
lesser of the two loads is made, if it is less than before. No partition is moved twice.

How good it is: `at_least` says how many moves any plan needs that reaches the aim: of each node above it, its largest partitions until
the rest fits. Where every partition is at most a tenth of the mean load of the lightest node, something always fits (some node is at or
below its share, so it has a tenth of room), the aim is reached, and with exactly `at_least` moves: largest first is fewest. With
larger partitions, `at_least` shows how far from the best it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

AIM = 1.1
_ROUNDING = 1e-9  # sums of floats


class Move(NamedTuple):
    """A partition with its load, from its owner to another node."""

    partition: int
    per_min: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`before` and `after`: load of each node. The levels are explained above; `possible`: no plan gets below this level, because a
    partition is moved whole."""

    moves: tuple[Move, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]
    level_before: float
    level_after: float
    possible: float
    at_least: int
    aim: float

    @property
    def reached(self) -> bool:
        """Whether the aim is met."""
        return self.level_after <= self.aim + _ROUNDING


def plan(
    owners: Mapping[int, str], per_min: Mapping[int, float], weights: Mapping[str, float], *, aim: float = AIM
) -> Plan:
    """A plan for these owners; `per_min`: load of a partition, 0 if absent; `weights`: of the nodes that may own, all above 0."""
    board = _Board(owners, per_min, weights, aim)
    before, level_before, at_least = dict(board.loads), board.level(), board.at_least()
    moves: list[Move] = []
    stuck: set[str] = set()
    while (source := board.busiest(stuck)) is not None:
        move = board.best_move(source)
        if move is None:
            stuck.add(source)
        else:
            board.make(move)
            moves.append(move)
    return Plan(tuple(moves), before, board.loads, level_before, board.level(), board.possible(), at_least, aim)


class _Board:
    """Loads, and what may still be moved."""

    def __init__(
        self, owners: Mapping[int, str], per_min: Mapping[int, float], weights: Mapping[str, float], aim: float
    ) -> None:
        self.loads = dict.fromkeys(sorted(weights), 0.0)
        self._movable: dict[str, dict[int, float]] = {node: {} for node in self.loads}
        for partition, node in sorted(owners.items()):
            load = per_min.get(partition, 0.0)
            self.loads[node] += load
            if load > 0:
                self._movable[node][partition] = load
        self._largest = max(per_min.values(), default=0.0)
        total, weight = sum(self.loads.values()), sum(weights.values())
        self._share = {node: total * weights[node] / weight for node in self.loads}
        self._limit = {node: aim * share for node, share in self._share.items()}

    def _relative(self, node: str, load: float) -> float:
        return load / self._share[node] if self._share[node] else 0.0

    def level(self) -> float:
        return max((self._relative(node, load) for node, load in self.loads.items()), default=0.0)

    def possible(self) -> float:
        """The largest partition alone on the heaviest node."""
        if not any(self._share.values()):
            return 0.0
        return max(1.0, self._largest / max(self._share.values()))

    def at_least(self) -> int:
        moves = 0
        for node, load in self.loads.items():
            for partition_load in sorted(self._movable[node].values(), reverse=True):
                if load <= self._limit[node] + _ROUNDING:
                    break
                load -= partition_load
                moves += 1
        return moves

    def busiest(self, stuck: Iterable[str]) -> str | None:
        """The node that is furthest above the aim; None: none is, but for those that nothing helps."""
        above = [n for n, load in self.loads.items() if load > self._limit[n] + _ROUNDING and n not in stuck]
        return max(above, key=lambda node: (self._relative(node, self.loads[node]), node), default=None)

    def best_move(self, source: str) -> Move | None:
        return self._fitting(source) or self._relieving(source)

    def _fitting(self, source: str) -> Move | None:
        """The move that lifts nobody above the aim and brings the source furthest: to the aim with the least, else by the most."""
        excess = self.loads[source] - self._limit[source]
        largest_first = sorted(self._movable[source].items(), key=lambda item: (-item[1], item[0]))
        enough = [item for item in reversed(largest_first) if item[1] >= excess - _ROUNDING]
        for partition, load in (*enough, *largest_first):
            target = self._roomiest(source, load)
            if self.loads[target] + load <= self._limit[target] + _ROUNDING:
                return Move(partition, load, source, target)
        return None

    def _relieving(self, source: str) -> Move | None:
        """The move after which the busier of the two is least busy, if that is less than the source is now."""
        now = self._relative(source, self.loads[source])
        best: tuple[float, Move] | None = None
        for partition, load in self._movable[source].items():
            target = self._roomiest(source, load)
            left = self._relative(source, self.loads[source] - load)
            then = max(left, self._relative(target, self.loads[target] + load))
            if then < (best[0] if best else now) - _ROUNDING:
                best = then, Move(partition, load, source, target)
        return best[1] if best else None

    def _roomiest(self, source: str, load: float) -> str:
        """The node that is least busy once it has taken a partition of this load; the source itself if there is no other."""
        others = [node for node in self.loads if node != source] or [source]
        return min(others, key=lambda node: (self._relative(node, self.loads[node] + load), node))

    def make(self, move: Move) -> None:
        self.loads[move.source] -= move.per_min
        self.loads[move.target] += move.per_min
        del self._movable[move.source][move.partition]
