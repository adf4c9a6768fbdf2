"""The states of a run stand in code and in SQL, and say the same."""

from itertools import product
from typing import Any

import psycopg
import pytest

from bucketd.store.model import FINAL, TRANSITIONS, RunStatus

# claim, wake_at, finished_at that may stand beside a status
FORMS: dict[RunStatus, set[tuple[bool, bool, bool]]] = {
    RunStatus.RUNNING: {(True, False, False), (True, True, False), (False, True, False)},
    RunStatus.RETRYING: {(False, True, False)},
    RunStatus.DEFERRED: {(False, True, False)},
    RunStatus.WAITING: {(False, True, False)},
    RunStatus.HELD: {(False, True, False)},
    **{status: {(False, False, True)} for status in FINAL},
}


def test_the_enum_of_postgres_is_the_enum_of_the_code(migrated: psycopg.Connection[Any]) -> None:
    row = migrated.execute("select enum_range(null::bucketd.run_status)::text[]").fetchone()
    assert row is not None
    assert set(row[0]) == {str(status) for status in RunStatus} == {str(status) for status in TRANSITIONS}
    origins = migrated.execute("select enum_range(null::bucketd.run_origin)::text[]").fetchone()
    assert origins is not None
    assert set(origins[0]) == {"fire", "late", "settle", "catch_up", "trigger", "backfill"}


@pytest.mark.parametrize("status", list(RunStatus))
def test_no_row_is_without_wake_at_or_claim_unless_it_is_final(
    shared: psycopg.Connection[Any], status: RunStatus
) -> None:
    """I7 as a CHECK. Whether a final row may still carry `finished_at` is all that is free."""
    for claim, wakes, finished in product([False, True], repeat=3):
        values = {
            "status": str(status), "claim": 7 if claim else None, "finished": "now" if finished else None,
            "wake": ("infinity" if status is RunStatus.HELD else "now") if wakes else None,
        }  # fmt: skip
        insert = (
            "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, claim, wake_at, finished_at)"
            " values (now(), gen_random_uuid(), 1, %(status)s, 'fire', 'default', %(claim)s, %(wake)s, %(finished)s)"
        )
        if any((claim, wakes) == form[:2] and (finished or not form[2]) for form in FORMS[status]):
            shared.execute(insert, values)
        else:
            with pytest.raises(psycopg.errors.CheckViolation, match="runs_states"):
                shared.execute(insert, values)


def test_a_held_row_waits_for_ever(shared: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="runs_states"):
        shared.execute(
            "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, wake_at)"
            " values (now(), gen_random_uuid(), 1, 'held', 'fire', 'default', now())"
        )


def test_a_run_key_has_one_row(shared: psycopg.Connection[Any]) -> None:
    insert = (
        "insert into bucketd.runs (scheduled_at, schedule_id, target_id, status, origin, tenant, wake_at)"
        " values (date_trunc('day', now()), '00000000-0000-4000-8000-000000000001', 1, 'deferred', 'fire', 'default', now())"
    )
    shared.execute(insert)
    with pytest.raises(psycopg.errors.UniqueViolation):
        shared.execute(insert)
