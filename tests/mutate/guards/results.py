"""Step 5, target to run row: an outcome counts only if attempt and claim are still the writer's."""

from collections.abc import Iterator

from tests.mutate.guard import Guard

RESULTS = "store/sql/results.sql"
FENCED = "tests/store/test_result_fences.py::test_what_is_not_the_writers_stays_as_it_is"
STATEMENTS = ("success", "failure", "acceptance", "give-back", "deferral")


def fences() -> Iterator[Guard]:
    """Of each statement both halves of its fence."""
    for kind in STATEMENTS:
        for half, why in (
            ("attempt", "what an older attempt brings is written over a newer one's row"),
            ("claim", "the number of an attempt that was given back is used again, by whoever claims the run next"),
        ):
            yield Guard(
                name=f"{half}-of-{kind}",
                file=RESULTS,
                text=f"        and r.{half} = e.{half}  -- guard: {half}-of-{kind}\n",
                instead="",
                invariant="I2 results from the current attempt and claim",
                why=f"{kind}: {why}",
                tests=(f"{FENCED}[{half}-{kind}]",),
            )


GUARDS = (
    *fences(),
    Guard(
        name="drawn-delay",
        file=RESULTS,
        text="wake_at = k.now + e.delay_s * interval '1 second',  -- guard: drawn-delay",
        instead="wake_at = case when e.delay_s is not null then k.now end,",
        invariant="retries keep their distance",
        why="what failed together is tried again together, at once",
        tests=(
            "tests/runner/test_calls.py::test_the_drawn_delay_is_in_the_row",
            "tests/runner/test_calls.py::test_retry_after_is_a_lower_bound",
        ),
    ),
    Guard(
        name="spent-claims",
        file="runner/run.py",
        text="if claim.open == runs]  # guard: spent-claims",
        instead="]",
        invariant="I7 no row without a claim of a live runner",
        why="a claim goes with its first results, and no reaper finds the rest when their runner dies",
        tests=(
            "tests/runner/test_parts.py::test_a_claim_is_spent_with_its_last_runs",
            "tests/runner/test_results.py::test_the_claim_stays_until_its_last_run",
        ),
    ),
    Guard(
        name="dead-for-good",
        file="store/sql/runners.sql",
        text="    and dead_at is null  -- guard: dead-for-good\n",
        instead="",
        invariant="I2 results from the current claim only",
        why="a runner that was buried, its runs given to others, lives on as if nothing had been",
        tests=("tests/runner/test_heartbeat.py::test_a_dead_incarnation_is_replaced_and_its_outcomes_are_dropped",),
    ),
    Guard(
        name="lapsed-lease",
        file="store/sql/runners.sql",
        text="    and heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second'  -- guard: lapsed-lease\n",
        instead="",
        invariant="I2 results from the current claim only",
        why="a lease that others may have counted out is renewed",
        tests=("tests/runner/test_heartbeat.py::test_a_lease_that_ran_out_is_not_renewed",),
    ),
    Guard(
        name="living-claims",
        file="store/sql/reap.sql",
        text="where not exists (select from bucketd.runners r where r.runner_id = c.runner_id and r.dead_at is null)"
        "  -- guard: living-claims",
        instead="where true",
        invariant="I2 one runner an attempt",
        why="the reaper gives away what a living runner is calling",
        tests=("tests/scheduler/test_reaper.py::test_rows_that_went_on_meanwhile_are_left_alone",),
    ),
    Guard(
        name="reaped-claims",
        file="store/sql/reap.sql",
        text="where r.claim = any(%(claims)s::bigint[])  -- guard: reaped-claims",
        instead="where r.claim is not null",
        invariant="I2 one runner an attempt",
        why="the reaper gives away runs that went on under another claim at the same instant",
        tests=("tests/scheduler/test_reaper.py::test_rows_that_went_on_meanwhile_are_left_alone",),
    ),
)
