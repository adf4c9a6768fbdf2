"""The choice for missed slots: cases by policy, and the count that no slot escapes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.timing import Judgement, MisfirePolicy, TimingError, Verdict, judge

NOW = 1_000_000.0


def ages(*ages_s: int) -> list[int]:
    return [int(NOW) - age_s for age_s in ages_s]


def late(at_s: int, status: str, reason: str, missed: int = 0, background: bool = False) -> Verdict:
    return Verdict(at_s, status, reason, missed, background)


def on_time(at_s: int) -> Verdict:
    return Verdict(at_s, "deferred", None, 0, False)


@pytest.mark.parametrize("misfire", ["run_once", "skip", "catch_up"])
def test_slots_inside_the_threshold_all_run(misfire: str) -> None:
    slots = ages(60, 30, 1)
    assert judge(slots, NOW, 0, MisfirePolicy(misfire)) == Judgement(tuple(map(on_time, slots)), None)
    assert judge([], NOW, 0, MisfirePolicy(misfire)) == Judgement((), None)


def test_threshold_is_counted_from_due_and_exact() -> None:
    policy = MisfirePolicy("run_once")
    (slot,) = ages(61)
    assert judge([slot], NOW, 0, policy).verdicts[0].reason == "misfire"
    assert judge([slot], NOW, 1, policy).verdicts[0].reason is None
    assert judge([slot + 1], NOW + 0.5, 0, policy).verdicts[0].reason == "misfire"


def test_run_once_runs_the_newest_and_counts_the_others() -> None:
    slots = ages(300, 200, 100, 20)
    assert judge(slots, NOW, 0, MisfirePolicy("run_once")) == Judgement(
        (late(slots[2], "deferred", "misfire", missed=2), on_time(slots[3])), slots[2]
    )
    assert judge(slots, NOW, 0, MisfirePolicy("run_once"), unlisted=7).verdicts[0].missed == 9
    assert judge(slots[2:], NOW, 0, MisfirePolicy("run_once")).floor_s is None


def test_skip_writes_one_row() -> None:
    slots = ages(300, 200, 100, 20)
    assert judge(slots, NOW, 0, MisfirePolicy("skip"), unlisted=1) == Judgement(
        (late(slots[2], "skipped", "misfire", missed=3), on_time(slots[3])), slots[2]
    )


def test_catch_up_runs_each_oldest_first_in_the_background() -> None:
    slots = ages(300, 200, 100, 20)
    assert judge(slots, NOW, 0, MisfirePolicy("catch_up")) == Judgement(
        (*(late(slot, "deferred", "catch_up", background=True) for slot in slots[:3]), on_time(slots[3])), None
    )


def test_catch_up_drops_what_is_outside_window_and_cap() -> None:
    slots = ages(500, 400, 300, 200, 100)
    windowed = judge(slots, NOW, 0, MisfirePolicy("catch_up", catch_up_window_s=300), unlisted=10)
    assert [(row.at_s, row.missed) for row in windowed.verdicts] == [(slots[2], 12), (slots[3], 0), (slots[4], 0)]
    assert windowed.floor_s == slots[2]
    capped = judge(slots, NOW, 0, MisfirePolicy("catch_up", catch_up_cap=2))
    assert [(row.at_s, row.missed) for row in capped.verdicts] == [(slots[3], 3), (slots[4], 0)]


@pytest.mark.parametrize("policy", [{"catch_up_cap": 0}, {"catch_up_window_s": 70}])
def test_catch_up_of_nothing_is_one_skipped_row(policy: dict[str, int]) -> None:
    slots = ages(300, 200, 100)
    assert judge(slots, NOW, 0, MisfirePolicy("catch_up", **policy)) == Judgement(
        (late(slots[2], "skipped", "misfire", missed=2),), slots[2]
    )


@pytest.mark.parametrize("misfire", ["run_once", "skip", "catch_up"])
def test_past_deadline_is_one_row_if_no_other_carries_the_count(misfire: str) -> None:
    slots = ages(300, 200, 100, 20)
    judged = judge(slots, NOW, 0, MisfirePolicy(misfire, deadline_s=90), unlisted=4)
    assert judged == Judgement((late(slots[2], "skipped", "past_deadline", missed=6), on_time(slots[3])), slots[2])


@pytest.mark.parametrize(
    ("misfire", "status", "reason"),
    [("run_once", "deferred", "misfire"), ("skip", "skipped", "misfire"), ("catch_up", "deferred", "catch_up")],
)
def test_past_deadline_is_counted_in_the_row_of_the_policy(misfire: str, status: str, reason: str) -> None:
    slots = ages(300, 200, 100)
    (row,) = judge(slots, NOW, 0, MisfirePolicy(misfire, deadline_s=150)).verdicts
    assert (row.at_s, row.status, row.reason, row.missed) == (slots[2], status, reason, 2)


def test_deadline_below_the_threshold_holds_as_well() -> None:
    slots = ages(50, 5)
    judged = judge(slots, NOW, 0, MisfirePolicy("run_once", deadline_s=10))
    assert judged == Judgement((late(slots[0], "skipped", "past_deadline"), on_time(slots[1])), None)


def test_deadline_and_window_include_their_last_second() -> None:
    slots = ages(201, 200, 199)
    assert judge(slots, NOW, 0, MisfirePolicy("catch_up", deadline_s=200)).floor_s == slots[1]
    assert judge(slots, NOW, 0, MisfirePolicy("catch_up", catch_up_window_s=200)).floor_s == slots[1]
    assert judge(slots, NOW, 1, MisfirePolicy("catch_up", deadline_s=200)).floor_s is None


def test_unlisted_slots_are_carried_by_the_oldest_row_whatever_it_is() -> None:
    slots = ages(50, 20)
    judged = judge(slots, NOW, 0, MisfirePolicy("run_once"), unlisted=3)
    assert judged.verdicts[0] == Verdict(slots[0], "deferred", None, 3, False)
    assert judged.floor_s == slots[0]
    with pytest.raises(ValueError, match="expected at least one listed slot"):
        judge([], NOW, 0, MisfirePolicy("run_once"), unlisted=1)


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(TimingError):
        MisfirePolicy("sometimes")


_slots = st.lists(st.integers(0, 4_000), unique=True, min_size=1, max_size=40).map(sorted)
_policies = st.builds(
    MisfirePolicy,
    misfire=st.sampled_from(["run_once", "skip", "catch_up"]),
    threshold_s=st.integers(0, 300),
    deadline_s=st.none() | st.integers(0, 3_000),
    catch_up_window_s=st.integers(0, 4_000),
    catch_up_cap=st.integers(0, 20),
)


@settings(max_examples=500, deadline=None)
@given(_slots, st.integers(0, 3_600), _policies, st.integers(0, 50), st.floats(0, 100))
def test_every_slot_has_a_row_or_is_counted_once(
    slots: list[int], jitter_s: int, policy: MisfirePolicy, unlisted: int, wait_s: float
) -> None:
    now_s = slots[-1] + jitter_s + wait_s
    judged = judge(slots, now_s, jitter_s, policy, unlisted)
    rows = [row.at_s for row in judged.verdicts]
    assert rows == sorted(set(rows))
    assert set(rows) <= set(slots)
    assert len(rows) + sum(row.missed for row in judged.verdicts) == len(slots) + unlisted
    rowless = [slot for slot in slots if slot not in rows]
    if judged.floor_s is None:
        assert not rowless
        assert not unlisted
        return
    assert all(slot < judged.floor_s for slot in rowless)
    assert all(row.at_s >= judged.floor_s for row in judged.verdicts if row.status == "deferred")
    again = [slot for slot in rowless if slot >= judged.floor_s]
    assert judge(again, now_s, jitter_s, policy) == Judgement((), None)


@settings(max_examples=200, deadline=None)
@given(_slots, _policies)
def test_only_on_time_and_chosen_slots_run(slots: list[int], policy: MisfirePolicy) -> None:
    now_s = float(slots[-1])
    for row in judge(slots, now_s, 0, policy).verdicts:
        age_s = now_s - row.at_s
        past_deadline = policy.deadline_s is not None and age_s > policy.deadline_s
        assert (row.reason is None) == (age_s <= policy.threshold_s and not past_deadline)
        if row.status == "deferred" and policy.deadline_s is not None:
            assert age_s <= policy.deadline_s
        if row.background:
            assert age_s <= policy.catch_up_window_s
