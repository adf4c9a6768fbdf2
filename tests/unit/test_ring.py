"""Bounded load, the same answer everywhere, and few moves when a node comes or goes."""

from collections import Counter
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.scheduler import ring
from bucketd.scheduler.ring import assign
from bucketd.store.keys import PARTITIONS
from bucketd.store.members import Members
from bucketd.store.ring import Words

nodes = st.lists(st.uuids(version=4).map(lambda node: node.hex), min_size=1, max_size=12, unique=True)


@settings(max_examples=30, deadline=None)
@given(nodes)
def test_every_partition_has_an_owner_and_none_has_too_many(names: list[str]) -> None:
    owners = assign(names)
    assert sorted(owners) == list(range(PARTITIONS))
    assert set(owners.values()) <= set(names)
    assert max(Counter(owners.values()).values()) <= ceil(1.1 * PARTITIONS / len(names))


@settings(max_examples=30, deadline=None)
@given(nodes, st.randoms())
def test_the_order_in_which_nodes_are_named_does_not_matter(names: list[str], random: object) -> None:
    shuffled = sorted(names, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert assign(shuffled) == assign(names)


@st.composite
def rings(draw: st.DrawFn) -> tuple[list[str], dict[str, float], dict[int, str]]:
    """Nodes, their weights, and moves of up to 40 partitions."""
    names = draw(nodes.filter(lambda names: len(names) > 1))
    weights = {name: draw(st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 4.0])) for name in names}
    moves = draw(st.dictionaries(st.integers(0, PARTITIONS - 1), st.sampled_from(names), max_size=40))
    return names, weights, moves


@settings(max_examples=100, deadline=None)
@given(nodes.filter(lambda names: len(names) > 1))
def test_a_join_or_a_leave_moves_a_share_and_a_tenth(names: list[str]) -> None:
    """Read in one direction it is a leave of the last, in the other a join."""
    with_all, without_last = assign(names), assign(names[:-1])
    moved = sum(with_all[p] != without_last[p] for p in range(PARTITIONS))
    assert moved <= ceil(PARTITIONS / len(names)) + PARTITIONS / 10


@settings(max_examples=100, deadline=None)
@given(rings())
def test_so_it_does_with_weights_and_moves(found: tuple[list[str], dict[str, float], dict[int, str]]) -> None:
    """The share is the node's own; with it comes and goes what was moved to it."""
    names, weights, moves = found
    last = names[-1]
    with_all, without_last = assign(names, weights, moves), assign(names[:-1], weights, moves)
    moved = sum(with_all[p] != without_last[p] for p in range(PARTITIONS))
    share = PARTITIONS * weights[last] / sum(weights.values())
    assert moved <= ceil(share) + PARTITIONS / 10 + sum(node == last for node in moves.values())


@pytest.mark.parametrize(
    ("seed", "shares"),
    [(548, (0.5, 1.0, 0.5)), (1007, (1.0, 2.0, 1.0)), (1947, (2.0, 4.0, 2.0)), (1452, (0.5, 1, 2, 4, 2))],
)
def test_rings_that_moved_too_much_when_each_node_had_as_many_points(seed: int, shares: tuple[float, ...]) -> None:
    names = [f"node-{seed}-{place}" for place in range(len(shares))]
    weights = dict(zip(names, shares, strict=True))
    with_all, without_last = assign(names, weights), assign(names[:-1], weights)
    moved = sum(with_all[p] != without_last[p] for p in range(PARTITIONS))
    assert moved <= ceil(PARTITIONS * shares[-1] / sum(shares)) + PARTITIONS / 10


@settings(max_examples=30, deadline=None)
@given(rings())
def test_a_move_changes_the_owner_of_that_partition_alone(
    found: tuple[list[str], dict[str, float], dict[int, str]],
) -> None:
    """However full its node is: what a plan promises is what happens."""
    names, weights, moves = found
    assert assign(names, weights, moves) == assign(names, weights) | moves


@settings(max_examples=30, deadline=None)
@given(rings())
def test_a_move_to_a_node_that_is_away_or_cordoned_is_as_if_nobody_had_asked(
    found: tuple[list[str], dict[str, float], dict[int, str]],
) -> None:
    names, weights, moves = found
    last = names[-1]
    kept = {p: node for p, node in moves.items() if node != last}
    assert assign(names[:-1], weights, moves) == assign(names[:-1], weights, kept)
    assert assign(names, weights | {last: 0.0}, moves) == assign(names[:-1], weights, kept)


def test_words_mean_an_incarnation_or_whoever_has_the_name() -> None:
    members = Members(
        ("1a", "1b", "2a", "3a"),
        {"1a": "one", "1b": "one", "2a": "two", "3a": "three"},
        Words(
            weights={"@one": 2.0, "1b": 3.0, "@two": 0.5, "gone": 9.0},
            cordons={"2a": 1.0, "@away": 1.0},
            moves={3: "1a", 4: "@three", 6: "@one", 7: "@one", 8: "2a", 9: "@two", 10: "gone", 11: "@away"},
        ),
    )
    assert ring.weights(members) == {"1a": 2.0, "1b": 3.0, "2a": 0.0, "3a": 1.0}
    assert ring.moves(members) == {3: "1a", 4: "3a", 6: "1a", 7: "1b"}
    assert [ring.address(members, node) for node in members.nodes] == ["1a", "1b", "@two", "@three"]
    assert ring.owners(members) == assign(
        members.nodes, {"1a": 2.0, "1b": 3.0, "2a": 0.0}, {3: "1a", 4: "3a", 6: "1a", 7: "1b"}
    )
    cordoned = replace(members, words=Words(cordons={"@one": 1.0}))
    assert set(ring.owners(cordoned).values()) == {"2a", "3a"}
    assert (
        ring.owners(replace(members, words=Words(cordons={f"@{name}": 1.0 for name in ("one", "two", "three")}))) == {}
    )


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=30, deadline=None)
@given(nodes)
def test_a_cordoned_node_owns_nothing(names: list[str]) -> None:
    owners = assign(names, {names[0]: 0.0})
    assert names[0] not in owners.values()
    assert len(owners) == (PARTITIONS if len(names) > 1 else 0)


def test_without_a_node_nobody_owns_anything() -> None:
    assert assign([]) == {}
    assert assign(["a", "b"], {"a": 0, "b": -1}) == {}
