"""Which node should own which partition: a pure function of who is alive and what operators said, so that every node comes to the same
answer.

uhashring gives each partition its order of preference, in which a node stands as often as its weight says; bounded load (Mirrokni,
Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2017) levels it: a node takes no more than 1.1 times its weighted
share, and what it turns away goes to the partition's next choice. A join or a leave then moves at most ceil(share) + P/10
partitions, where the share of one node of N equal ones is P/N. (With as many points for each node, whatever its weight, it did not: the
light ones turned most of theirs away, and one node more changed whom. 2 of 712 random rings broke the bound, now the worst stays 8 below.)

A move that an operator asked for comes last and beats the bound: it changes the owner of that partition and of no other, so
what a plan of moves promises is what happens. It holds while the node that it names is alive and not cordoned; else the ring
decides as if nobody had asked. So with moves a leave also moves those that were pinned to the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from uhashring import HashRing

from bucketd.store.keys import PARTITIONS
from bucketd.store.members import Members
from bucketd.store.ring import BY_NAME

LOAD_FACTOR = 1.1
POINTS = 40  # on the ring for a weight of 1, four places each
MOST_POINTS = 10 * POINTS  # a heavier node is levelled by its room alone


def owners(members: Members) -> dict[int, str]:
    """Owner of each partition, operators' words obeyed; empty without a node that may own any."""
    return assign(members.nodes, weights(members), moves(members))


def assign(
    nodes: Sequence[str], weights: Mapping[str, float] | None = None, moves: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Owner of each partition; empty without a node that may own any.

    `weights`: share of a node relative to the others, 1 if absent; 0 or less: the node is cordoned and owns nothing.
    `moves`: partition -> node that is to own it; without effect if that node may own nothing.
    """
    weight = {node: (weights or {}).get(node, 1.0) for node in sorted(nodes)}
    weight = {node: share for node, share in weight.items() if share > 0}
    if not weight:
        return {}
    return _levelled(weight) | {p: node for p, node in (moves or {}).items() if node in weight}


def _levelled(weight: Mapping[str, float]) -> dict[int, str]:
    """What the ring says by itself; all weights above 0."""
    total = sum(weight.values())
    room = {node: ceil(LOAD_FACTOR * PARTITIONS * share / total) for node, share in weight.items()}
    points = {node: {"vnodes": min(MOST_POINTS, ceil(POINTS * share)), "weight": 1} for node, share in weight.items()}
    ring = HashRing(nodes=points, hash_fn="ketama")
    owners: dict[int, str] = {}
    for partition in range(PARTITIONS):
        for choice in ring.range(f"partition-{partition}", unique=True):
            node = choice["nodename"]
            if room[node] > 0:
                room[node] -= 1
                owners[partition] = node
                break
    return owners


def weights(members: Members) -> dict[str, float]:
    """Weight of each living node, 0 if it is cordoned."""
    return {node: 0.0 if cordoned(members, node) else weight(members, node) for node in members.nodes}


def weight(members: Members, node: str) -> float:
    """What was said of this incarnation, else of its name; 1 without a word."""
    said = members.words.weights
    return said.get(node, said.get(BY_NAME + members.names.get(node, ""), 1.0))


def cordoned(members: Members, node: str) -> bool:
    """Whether an operator cordoned this incarnation, or whoever has its name."""
    cordons = members.words.cordons
    return node in cordons or BY_NAME + members.names.get(node, "") in cordons


def moves(members: Members) -> dict[int, str]:
    """Partition -> living node that an operator wants as its owner. Of several with one name, each is meant for a part."""
    able = [node for node, weight in weights(members).items() if weight > 0]
    meant: dict[str, list[str]] = {node: [node] for node in able}
    for node in able:
        meant.setdefault(BY_NAME + members.names.get(node, ""), []).append(node)
    return {
        partition: nodes[partition % len(nodes)]
        for partition, about in members.words.moves.items()
        if (nodes := meant.get(about))
    }


def address(members: Members, node: str) -> str:
    """How a word that is to outlive a restart calls this node: by its name, if nobody else alive has it, else by its id."""
    name = members.names.get(node)
    alone = sum(other == name for other in members.names.values()) == 1
    return BY_NAME + name if name and alone else node
