"""An edit of the jitter inside an outage: the rows are those of one outage, not of one for each jitter."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.scheduler.verdicts import verdicts
from bucketd.store.settle import Candidate, NewRun

NOW_S = 1_800_000_000
ID = UUID(int=1)


def slot(ago_s: int, jitter_s: int, **policy: Any) -> Candidate:
    """A slot whose instant is so long ago."""
    values: dict[str, Any] = {"misfire": "run_once", "threshold_s": 60, "deadline_s": None, **policy}
    return Candidate(ID, NOW_S - ago_s, jitter_s, "default", 1, held=False, **values)


def shape(runs: list[NewRun]) -> list[tuple[int, str, str | None, int]]:
    return [(NOW_S - run.slot.at_s, run.status, run.reason, run.missed) for run in runs]


EDITED = [(4_000, 200), (3_000, 200), (2_000, 0), (1_500, 0), (1_000, 200), (500, 200), (20, 0)]


@pytest.mark.parametrize(("misfire", "status"), [("run_once", "deferred"), ("skip", "skipped")])
def test_one_row_takes_the_count(misfire: str, status: str) -> None:
    runs, floors = verdicts([slot(*one, misfire=misfire) for one in EDITED], NOW_S, unlisted={ID: 70})
    assert shape(runs) == [(500, status, "misfire", 75), (20, "deferred", None, 0)]
    assert floors == {ID: NOW_S - 500}


def test_catch_up_has_one_window() -> None:
    """What lies before it is counted, by whatever jitter it was due."""
    old = [(90_000, 50), (88_000, 50), (87_000, 0)]
    runs, floors = verdicts([slot(*one, misfire="catch_up") for one in old + EDITED[:3]], NOW_S)
    assert shape(runs) == [
        (4_000, "deferred", "catch_up", 3), (3_000, "deferred", "catch_up", 0), (2_000, "deferred", "catch_up", 0)
    ]  # fmt: skip
    assert floors == {ID: NOW_S - 4_000}


def test_catch_up_has_one_cap() -> None:
    slots = [slot(ago_s, 200 if ago_s > 1_700 else 0, misfire="catch_up") for ago_s in range(3_000, 60, -2)]
    runs, floors = verdicts(slots, NOW_S)
    assert len(runs) == 1_000
    assert runs[0].missed == len(slots) - 1_000
    assert floors == {ID: runs[0].slot.at_s}


def test_a_slot_that_may_still_run_is_not_folded_into_one_that_may_not() -> None:
    """By its longer jitter the older one was due later, within the deadline."""
    runs, floors = verdicts(
        [slot(1_000, 0, deadline_s=450), slot(600, 200, deadline_s=450), slot(500, 0, deadline_s=450)], NOW_S
    )
    assert shape(runs) == [(600, "deferred", "misfire", 1), (500, "skipped", "past_deadline", 0)]
    assert floors == {ID: NOW_S - 600}


@given(
    st.sampled_from(["run_once", "skip", "catch_up"]),
    st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 3_600)), min_size=1, unique_by=lambda one: one[0]),
    st.none() | st.integers(1, 90_000),
    st.integers(0, 50),
)
def test_each_slot_is_a_row_or_is_counted_below_the_floor(
    misfire: str, found: list[tuple[int, int]], deadline_s: int | None, older: int
) -> None:
    """I3, for any sequence of jitters."""
    slots = [slot(*one, misfire=misfire, deadline_s=deadline_s) for one in sorted(found, reverse=True)]
    runs, floors = verdicts(slots, NOW_S, unlisted={ID: older})
    assert len({run.slot.at_s for run in runs}) == len(runs)
    assert sum(run.missed + 1 for run in runs) == len(slots) + older
    without = {one.at_s for one in slots} - {run.slot.at_s for run in runs}
    assert all(at_s < floors[ID] for at_s in without)
    if misfire == "run_once":
        assert sum(run.status == "deferred" and run.reason is not None for run in runs) <= 1
