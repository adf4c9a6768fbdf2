"""Bounded load, the same answer everywhere, and few moves when a node comes or goes."""

from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.scheduler.ring import assign
from bucketd.store.keys import PARTITIONS

nodes = st.lists(st.uuids(version=4).map(lambda node: node.hex), min_size=1, max_size=12, unique=True)


@given(nodes)
def test_every_partition_has_an_owner_and_none_has_too_many(names: list[str]) -> None:
    owners = assign(names)
    assert sorted(owners) == list(range(PARTITIONS))
    assert set(owners.values()) <= set(names)
    assert max(Counter(owners.values()).values()) <= ceil(1.1 * PARTITIONS / len(names))


@given(nodes, st.randoms())
def test_the_order_in_which_nodes_are_named_does_not_matter(names: list[str], random: object) -> None:
    shuffled = sorted(names, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert assign(shuffled) == assign(names)


@settings(max_examples=200)
@given(nodes.filter(lambda names: len(names) > 1))
def test_a_join_or_a_leave_moves_a_share_and_a_tenth(names: list[str]) -> None:
    """Read in one direction it is a leave of the last, in the other a join."""
    with_all, without_last = assign(names), assign(names[:-1])
    moved = sum(with_all[p] != without_last[p] for p in range(PARTITIONS))
    assert moved <= ceil(PARTITIONS / len(names)) + PARTITIONS / 10


@given(nodes.filter(lambda names: len(names) > 1), st.floats(0.1, 8))
def test_a_weight_is_a_share(names: list[str], weight: float) -> None:
    counts = Counter(assign(names, {names[0]: weight}).values())
    total = len(names) - 1 + weight
    assert counts[names[0]] <= ceil(1.1 * PARTITIONS * weight / total)
    for other in names[1:]:
        assert counts[other] <= ceil(1.1 * PARTITIONS / total)
    assert sum(counts.values()) == PARTITIONS


def test_twice_the_weight_is_about_twice_the_load() -> None:
    counts = Counter(assign(["a", "b", "c"], {"a": 2.0}).values())
    assert 100 <= counts["a"] <= 141
    assert min(counts["b"], counts["c"]) >= 38


@given(nodes)
def test_a_cordoned_node_owns_nothing(names: list[str]) -> None:
    owners = assign(names, {names[0]: 0.0})
    assert names[0] not in owners.values()
    assert len(owners) == (PARTITIONS if len(names) > 1 else 0)


def test_without_a_node_nobody_owns_anything() -> None:
    assert assign([]) == {}
    assert assign(["a", "b"], {"a": 0, "b": -1}) == {}
