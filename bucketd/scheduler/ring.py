"""Which node should own which partition: a pure function of who is alive, so that every node comes to the same answer.

uhashring gives each partition its order of preference; bounded load (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with
Bounded Loads", 2017) levels it: a node takes no more than 1.1 times its weighted share, and what it turns away goes to the
partition's next choice. A join or a leave then moves at most ceil(P/N) + P/10 partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from uhashring import HashRing

from bucketd.store.keys import PARTITIONS

LOAD_FACTOR = 1.1


def assign(nodes: Sequence[str], weights: Mapping[str, float] | None = None) -> dict[int, str]:
    """Owner of each partition; empty without a node that may own any.

    `weights`: share of a node relative to the others, 1 if absent; 0 or less: the node is cordoned and owns nothing.
    """
    weight = {node: (weights or {}).get(node, 1.0) for node in sorted(nodes)}
    weight = {node: share for node, share in weight.items() if share > 0}
    if not weight:
        return {}
    total = sum(weight.values())
    room = {node: ceil(LOAD_FACTOR * PARTITIONS * share / total) for node, share in weight.items()}
    ring = HashRing(nodes=list(weight), hash_fn="ketama")
    owners: dict[int, str] = {}
    for partition in range(PARTITIONS):
        for choice in ring.range(f"partition-{partition}", unique=True):
            node = choice["nodename"]
            if room[node] > 0:
                room[node] -= 1
                owners[partition] = node
                break
    return owners
