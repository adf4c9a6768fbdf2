"""A plan is what its seed says, has every kind in it, and nothing in it is in the way of anything else."""

from itertools import combinations
from random import Random

from tests.chaos.fault import Kind, Shape
from tests.chaos.faults import KINDS
from tests.chaos.plan import APART_S, AT_ONCE, draw

SHAPE = Shape(nodes=3, runners=3, midnight_s=400.0)
USUAL = [kind for kind in KINDS if kind.before_midnight_s is None]


def test_a_seed_is_a_plan() -> None:
    plans = [[str(event) for event in draw(seed, KINDS, SHAPE, from_s=10, until_s=600)] for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


def test_names_are_unique_and_each_kind_can_be_drawn() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) > 30
    for kind in KINDS:
        fault = kind.draw(Random(1), SHAPE)
        assert fault.place
        assert fault.lasts_s >= 0
        assert fault.hits <= {*SHAPE.seats, "postgres", "redis", "target"}


def test_every_kind_comes_before_any_comes_again() -> None:
    for seed in range(20):
        events = draw(seed, USUAL, SHAPE, from_s=10, until_s=1_000)
        names = [event.kind.name for event in events]
        assert set(names) == {kind.name for kind in USUAL}
        assert len(set(names[: len(USUAL) * 9 // 10])) == len(USUAL) * 9 // 10, "in the order in which they were drawn"


def test_places_are_hit_one_after_the_other_and_all_is_healed_in_time() -> None:
    for seed in range(20):
        events = draw(seed, KINDS, SHAPE, from_s=10, until_s=600)
        assert len(events) > 40
        assert all(10 <= event.at_s <= event.until_s <= 600 for event in events)
        for one, other in combinations(events, 2):
            if one.fault.hits & other.fault.hits:
                first, second = sorted((one, other), key=lambda event: event.at_s)
                assert second.at_s >= first.until_s + APART_S - 1e-9, (str(first), str(second))
        for event in events:
            if event.kind.before_midnight_s is None:
                active = [other for other in events if other.at_s <= event.at_s < other.until_s]
                assert len(active) <= AT_ONCE + 1


def test_what_belongs_before_midnight_is_there() -> None:
    (kind,) = [kind for kind in KINDS if kind.name == "postgres: next day of runs missing"]
    (event,) = [event for event in draw(3, KINDS, SHAPE, from_s=10, until_s=600) if event.kind is kind]
    assert event.at_s == SHAPE.midnight_s - 5


def test_a_plan_ends_though_nothing_fits() -> None:
    long = [kind for kind in USUAL if kind.slow]
    assert isinstance(long[0], Kind)
    assert draw(1, long, SHAPE, from_s=0, until_s=5) == []
