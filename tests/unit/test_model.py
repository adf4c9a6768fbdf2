"""Run ids in both directions, and the one table of transitions."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.store.errors import InvalidInput
from bucketd.store.model import (
    FINAL,
    TRANSITIONS,
    RunStatus,
    check_transition,
    epoch_us,
    instant,
    new_ids,
    parse_run_id,
    run_id,
)

instants = st.datetimes(datetime(1971, 1, 1), datetime(2105, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(st.uuids(), instants)
def test_a_run_id_is_reversible(schedule_id: UUID, at: datetime) -> None:
    assert parse_run_id(run_id(schedule_id, at)) == (schedule_id, at)


@given(st.uuids(), instants, instants)
def test_run_ids_of_whole_seconds_sort_as_time_does(schedule_id: UUID, one: datetime, other: datetime) -> None:
    one, other = one.replace(microsecond=0), other.replace(microsecond=0)
    assert (run_id(schedule_id, one) < run_id(schedule_id, other)) == (one < other)


def test_a_run_id_is_utc_whatever_the_zone() -> None:
    at = datetime(2026, 11, 30, 9, tzinfo=UTC)
    id = UUID(int=7)
    assert run_id(id, at) == f"20261130T090000Z-{id.hex}"
    assert run_id(id, at.astimezone(timezone(timedelta(hours=5, minutes=45)))) == run_id(id, at)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20261130T090000Z",
        f"20261130T090000Z-{'0' * 31}",
        f"20261130T090000Z-{'0' * 33}",
        f"20261330T090000Z-{'0' * 32}",
        f"20261130T250000Z-{'0' * 32}",
        f"20261130T090000Z-{'G' * 32}",
        f" 20261130T090000Z-{'0' * 32}",
        f"20261130T090000Z-{'0' * 32}\n",
        f"20261130T090000_1Z-{'0' * 32}",
        f"\u09e8\u09e6\u09e8\u09ec1130T090000Z-{'0' * 32}",  # digits too, but not ours
    ],
)
def test_what_is_no_run_id_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a run id") as caught:
        parse_run_id(text)
    assert caught.value.field == "run_id"


@given(instants)
def test_microseconds_are_exact(at: datetime) -> None:
    assert instant(epoch_us(at)) == at


def test_every_status_has_its_line_and_final_ones_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(RunStatus)
    for status in FINAL - {RunStatus.DEAD}:
        assert not TRANSITIONS[status]
    assert TRANSITIONS[RunStatus.DEAD] == {RunStatus.DEFERRED}, "a replay is the only way back"
    assert not any(status in followers for status, followers in TRANSITIONS.items()), "no status follows itself"


def test_every_status_can_end() -> None:
    def reachable(status: RunStatus, seen: frozenset[RunStatus]) -> frozenset[RunStatus]:
        if status in seen:
            return seen
        seen |= {status}
        for following in TRANSITIONS[status]:
            seen = reachable(following, seen)
        return seen

    for status in RunStatus:
        assert FINAL & reachable(status, frozenset())


@given(st.sampled_from(RunStatus), st.sampled_from(RunStatus))
def test_the_check_follows_the_table(old: RunStatus, new: RunStatus) -> None:
    if new in TRANSITIONS[old]:
        check_transition(old, new)
    else:
        with pytest.raises(ValueError, match=f"next states of {old}.*got {new}"):
            check_transition(old, new)


def test_new_ids_begin_with_their_partition() -> None:
    made = list(new_ids(500))
    assert len(set(made)) == 500
    assert {(id.version, id.bytes[0] == id.bytes[15]) for id in made} == {(4, True)}
    assert len({id.bytes[15] for id in made}) > 200  # spread over the partitions
