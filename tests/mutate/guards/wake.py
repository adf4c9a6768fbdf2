"""Rows that wait: when they are taken, by whom, and what that costs."""

from tests.mutate.guard import Guard

TAKE = "store/sql/wake.sql"
TESTS = "tests/runner/test_wake.py"

GUARDS = (
    Guard(
        name="waking-runner",
        file=TAKE,
        text="""\
    where exists (select from bucketd.runners r where r.runner_id = %(runner)s::uuid and r.dead_at is null  -- guard: waking-runner
        and r.heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second')
""",
        instead="",
        invariant="I2 results from the current claim only",
        why="a dead runner takes rows that nobody takes from it again",
        tests=(f"{TESTS}::test_a_dead_runner_wakes_nothing",),
    ),
    Guard(
        name="wake-at",
        file=TAKE,
        text="where not background and wake_at <= (select now from state) and claim is null  -- guard: wake-at",
        instead="where not background and wake_at is not null and claim is null",
        invariant="I4 never early",
        why="retries, held rows and what waits for a later time are taken at once",
        tests=(f"{TESTS}::test_what_is_not_due_stays",),
    ),
    Guard(
        name="wake-at/never",
        file=TAKE,
        text="where not background and wake_at <= (select now from state) and claim is null  -- guard: wake-at",
        instead="where false",
        invariant="I7 no row waits for ever",
        why="nobody takes what failed once, was deferred, or was left by a dead runner",
        tests=("tests/runner/test_calls.py::test_retries_until_it_succeeds",),
    ),
    Guard(
        name="waking-hold",
        file=TAKE,
        text="""\
            when h.everything or d.tenant = any(h.tenants) or s.target_id = any(  -- guard: waking-hold
                case when d.reason = 'probe' then h.targets_of_users else h.targets end) then 'held'  -- a breaker asks by some runs
""",
        instead="",
        invariant="I5 no run begins after a hold",
        why="retries and deferred runs are called on under a hold",
        tests=(f"{TESTS}::test_rows_on_hold_are_parked",),
    ),
    Guard(
        name="attempt-spent",
        file=TAKE,
        text="attempt = d.attempt + (d.fate = 'running')::int,  -- guard: attempt-spent",
        instead="attempt = d.attempt,",
        invariant="I2 attempts 1, 2, 3 without gap",
        why="a retry spends no attempt: it goes on for ever, and its results pass for the first one's",
        tests=(
            f"{TESTS}::test_a_due_row_gets_its_next_attempt",
            "tests/runner/test_calls.py::test_retries_until_it_succeeds",
        ),
    ),
    Guard(
        name="last-attempt",
        file=TAKE,
        text="when d.attempt >= coalesce(s.max_attempts, t.max_attempts) and d.reason is distinct from 'replayed' then 'dead'"
        "  -- guard: last-attempt",
        instead="",
        invariant="retries are bounded",
        why="runs whose runners die over them are tried for ever",
        tests=(f"{TESTS}::test_no_attempt_left_is_dead",),
    ),
)
