"""A plan of moves: what it promises comes true, it never makes things worse, and where partitions are small it is the shortest."""

from itertools import product

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketd.ring.plan import AIM, Plan, plan

NODES = ("a", "b", "c", "d", "e")
SMALL = 40  # partitions in these examples

shares = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=5).map(
    lambda weights: dict(zip(NODES, weights, strict=False))
)


@st.composite
def rings(
    draw: st.DrawFn, loads: st.SearchStrategy[float]
) -> tuple[dict[int, str], dict[int, float], dict[str, float]]:
    weights = draw(shares)
    owners = {partition: draw(st.sampled_from(sorted(weights))) for partition in range(SMALL)}
    return owners, {partition: draw(loads) for partition in range(SMALL)}, weights


def level(owners: dict[int, str], per_min: dict[int, float], weights: dict[str, float]) -> float:
    """Load of the busiest node over its share, written another way."""
    total, weight = sum(per_min.values()), sum(weights.values())
    return max(
        sum(load for p, load in per_min.items() if owners[p] == node) / (total * weights[node] / weight)
        for node in weights
    )


def moved(owners: dict[int, str], found: Plan) -> dict[int, str]:
    return owners | {move.partition: move.target for move in found.moves}


@settings(max_examples=100, deadline=None)
@given(rings(st.floats(0.0, 100.0)))
def test_what_it_promises_comes_true_and_nothing_gets_worse(
    ring: tuple[dict[int, str], dict[int, float], dict[str, float]],
) -> None:
    owners, per_min, weights = ring
    assume(sum(per_min.values()) > 1)
    found = plan(owners, per_min, weights)
    after = moved(owners, found)
    assert all(owners[move.partition] == move.source for move in found.moves)
    assert len({move.partition for move in found.moves}) == len(found.moves)
    assert abs(level(owners, per_min, weights) - found.level_before) < 1e-6
    assert abs(level(after, per_min, weights) - found.level_after) < 1e-6
    assert found.level_after <= found.level_before + 1e-9
    assert found.level_after >= found.possible - 1e-6
    if found.level_before <= AIM:
        assert not found.moves
    if found.reached:
        assert len(found.moves) >= found.at_least


@settings(max_examples=100, deadline=None)
@given(rings(st.floats(0.5, 1.0)))
def test_with_small_partitions_it_reaches_the_aim_with_the_fewest_moves(
    ring: tuple[dict[int, str], dict[int, float], dict[str, float]],
) -> None:
    owners, per_min, weights = ring
    least = sum(per_min.values()) * min(weights.values()) / sum(weights.values())
    tenth = max(per_min.values()) / least + 0.001  # of the lightest node's mean, at least as much as any partition
    found = plan(owners, per_min, weights, aim=1 + tenth)
    assert found.reached
    assert len(found.moves) == found.at_least


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=6, max_size=6),
    st.lists(st.integers(1, 30), min_size=6, max_size=6),
)
def test_no_plan_at_all_is_shorter_than_it_says_or_more_level(names: list[str], sizes: list[int]) -> None:
    """Every assignment of six partitions to three nodes, tried."""
    owners = dict(enumerate(names))
    per_min = {partition: float(size) for partition, size in enumerate(sizes)}
    weights = {"a": 1.0, "b": 1.0, "c": 1.0}
    found = plan(owners, per_min, weights)
    reaching = []
    for chosen in product("abc", repeat=6):
        other = dict(enumerate(chosen))
        assert level(other, per_min, weights) >= found.possible - 1e-9
        if level(other, per_min, weights) <= AIM + 1e-12:
            reaching.append(sum(owners[p] != other[p] for p in owners))
    assert min(reaching, default=found.at_least) >= found.at_least
    if found.reached:
        assert reaching


def test_one_hot_partition_stays_alone() -> None:
    """It cannot be split; the others make room for it."""
    owners = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}
    per_min = {0: 100.0, 1: 10.0, 2: 10.0, 3: 10.0, 4: 10.0}
    found = plan(owners, per_min, {"a": 1.0, "b": 1.0})
    assert {move.partition for move in found.moves} == {1, 2}
    assert not found.reached
    assert found.level_after == found.possible == 100 / 70


def test_nothing_measured_nothing_to_do() -> None:
    found = plan({0: "a", 1: "a"}, {}, {"a": 1.0, "b": 1.0})
    assert (found.moves, found.level_before, found.reached) == ((), 0.0, True)
    assert plan({}, {}, {}).moves == ()
    assert plan({0: "a"}, {0: 5.0}, {"a": 1.0}).moves == ()
