"""From missing occurrences to rows and floors: each policy, holds, counts of what was not listed."""

from typing import Any
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from bucketd.scheduler.verdicts import verdicts
from bucketd.store.settle import Candidate, NewRun

NOW = 1_800_000_000.0
ID = UUID(int=1)


def candidate(age_s: float, id: UUID = ID, *, jitter_s: int = 0, held: bool = False, **policy: object) -> Candidate:
    """An occurrence that has been due for `age_s`."""
    values = {"misfire": "run_once", "threshold_s": 60, "deadline_s": None} | policy
    return Candidate(id, int(NOW - age_s) - jitter_s, jitter_s, "default", 1, held=held, **values)  # type: ignore[arg-type]


def shape(runs: list[NewRun]) -> list[tuple[int, str, str, int, bool, str | None]]:
    return [(int(NOW) - r.slot.at_s, r.status, r.origin, r.missed, r.background, r.reason) for r in runs]


def test_run_once_runs_the_newest_and_counts_the_rest() -> None:
    runs, floors = verdicts([candidate(age) for age in (400, 300, 200)], NOW)
    assert shape(runs) == [(200, "deferred", "settle", 2, False, "misfire")]
    assert floors == {ID: int(NOW) - 200}


def test_within_the_threshold_all_run() -> None:
    runs, floors = verdicts([candidate(age) for age in (60, 30, 1)], NOW)
    assert [one[1:] for one in shape(runs)] == [("deferred", "settle", 0, False, None)] * 3
    assert floors == {}


def test_skip_writes_one_row_with_the_count() -> None:
    runs, floors = verdicts([candidate(age, misfire="skip") for age in (400, 300, 200, 10)], NOW)
    assert shape(runs) == [
        (200, "skipped", "settle", 2, False, "misfire"),
        (10, "deferred", "settle", 0, False, None),
    ]
    assert floors == {ID: int(NOW) - 200}


def test_catch_up_runs_all_behind_live_work() -> None:
    runs, floors = verdicts([candidate(age, misfire="catch_up") for age in (400, 300, 10)], NOW)
    assert shape(runs) == [
        (400, "deferred", "catch_up", 0, True, "catch_up"),
        (300, "deferred", "catch_up", 0, True, "catch_up"),
        (10, "deferred", "settle", 0, False, None),
    ]
    assert floors == {}


def test_past_the_deadline_nothing_runs() -> None:
    runs, _ = verdicts([candidate(age, misfire="catch_up", deadline_s=120) for age in (400, 300)], NOW)
    assert shape(runs) == [(300, "skipped", "settle", 1, False, "past_deadline")]


def test_age_counts_from_due_not_from_the_instant() -> None:
    runs, _ = verdicts([candidate(50, jitter_s=600, misfire="skip")], NOW)
    assert [run.status for run in runs] == ["deferred"]


def test_each_timing_is_judged_by_its_own_jitter() -> None:
    """The jitter was edited: the older instant is due after the newer ones."""
    slots = [
        candidate(10, jitter_s=600, misfire="skip"),
        candidate(300, misfire="skip"),
        candidate(200, misfire="skip"),
    ]
    runs, floors = verdicts(slots, NOW)
    assert [(run.slot, run.status, run.missed) for run in runs] == [(slots[0], "deferred", 0), (slots[2], "skipped", 1)]
    assert floors == {ID: slots[2].at_s}
    cover = int(NOW) - 30
    once = [slot._replace(misfire="run_once") for slot in slots]
    runs, _ = verdicts(once, NOW, covers={ID: cover})
    assert [(run.slot.at_s, run.missed) for run in runs] == [(cover, 2), (slots[0].at_s, 0)]


def test_under_a_hold_everything_is_kept() -> None:
    runs, floors = verdicts([candidate(age, held=True, misfire="skip") for age in (400, 300, 10)], NOW)
    assert [run.status for run in runs] == ["held"] * 3
    assert floors == {}


def test_what_was_not_listed_is_counted_in_the_oldest_row() -> None:
    for policy in ("run_once", "skip", "catch_up"):
        runs, floors = verdicts([candidate(age, misfire=policy) for age in (400, 300)], NOW, unlisted={ID: 70})
        assert sum(run.missed for run in runs) + len(runs) == 72, policy
        assert floors == {ID: runs[0].slot.at_s}, policy


def test_what_was_not_listed_is_counted_under_a_hold_too() -> None:
    runs, floors = verdicts([candidate(age, held=True) for age in (400, 300)], NOW, unlisted={ID: 70})
    assert [(run.status, run.missed) for run in runs] == [("held", 70), ("held", 0)]
    assert floors == {ID: runs[0].slot.at_s}


def test_a_newer_run_that_was_confirmed_late_takes_the_count() -> None:
    cover = int(NOW) - 100
    runs, floors = verdicts([candidate(age) for age in (400, 300, 200)], NOW, covers={ID: cover})
    assert [(run.slot.at_s, run.missed) for run in runs] == [(cover, 3)], "nothing else of the outage runs"
    assert floors == {ID: cover}


def test_what_was_missed_after_the_confirmed_one_is_judged_by_itself() -> None:
    cover = int(NOW) - 250
    runs, floors = verdicts([candidate(age) for age in (400, 300, 200, 150, 10)], NOW, covers={ID: cover})
    assert [(int(NOW) - run.slot.at_s, run.missed) for run in runs] == [(250, 2), (150, 1), (10, 0)]
    assert floors == {ID: int(NOW) - 150}


policies = st.fixed_dictionaries(
    {
        "misfire": st.sampled_from(["run_once", "skip", "catch_up"]),
        "threshold_s": st.integers(1, 600),
        "deadline_s": st.none() | st.integers(1, 5_000),
    }
)


@given(
    st.lists(st.tuples(policies, st.sets(st.integers(0, 100_000), min_size=1, max_size=30), st.booleans()), max_size=5),
    st.integers(0, 500),
)
def test_every_slot_has_a_row_or_is_counted_in_one_below_a_floor(
    schedules: list[tuple[dict[str, Any], set[int], bool]], older: int
) -> None:
    """I3 for any mixture of schedules; and nothing that may still be confirmed lies below the floor that is raised."""
    ids = sorted(uuid5(ID, str(n)) for n in range(len(schedules)))
    candidates = [
        candidate(age, id, held=held, **policy)
        for id, (policy, ages, held) in zip(ids, schedules, strict=True)
        for age in sorted(ages, reverse=True)
    ]
    runs, floors = verdicts(candidates, NOW, unlisted=dict.fromkeys(ids, older))
    assert len({(run.slot.schedule_id, run.slot.at_s) for run in runs}) == len(runs)
    for id in ids:
        slots = [one.at_s for one in candidates if one.schedule_id == id]
        rows = [run for run in runs if run.slot.schedule_id == id]
        assert len(rows) + sum(run.missed for run in rows) == len(slots) + older
        without = set(slots) - {run.slot.at_s for run in rows}
        assert all(at_s < floors[id] for at_s in without)
        assert all(run.slot.at_s >= floors.get(id, 0) for run in rows)
        assert (id in floors) == bool(without or older)
