"""What the tables themselves refuse, whoever writes."""

from tests.mutate.guard import Guard

SPINE = "store/migrations/0001_spine.sql"
DAYS = "tests/store/test_days.py"

GUARDS = (
    Guard(
        name="run-key",
        file=SPINE,
        text="    primary key (scheduled_at, schedule_id),  -- guard: run-key\n",
        instead="",
        invariant="I1 one row a run key",
        why="a fire that comes twice runs twice",
        tests=("tests/runner/test_confirm_guards.py::test_the_same_key_again_is_no_new_row_and_no_claim",),
    ),
    Guard(
        name="no-default-day",
        file=SPINE,
        text=") partition by range (scheduled_at);  -- guard: no-default-day\n",
        instead=") partition by range (scheduled_at);\ncreate table bucketd.runs_rest partition of bucketd.runs default;\n",
        invariant="I1 no row below the retention floor",
        why="the run key of a day that was dropped is free again",
        tests=(f"{DAYS}::test_there_is_no_day_for_what_lies_outside",),
    ),
    Guard(
        name="dropped-days",
        file=SPINE,
        text="utc_day := (greatest(least(from_at, state.days_through), state.retention_floor) at time zone 'UTC')::date;"
        "  -- guard: dropped-days",
        instead="utc_day := (least(from_at, state.days_through) at time zone 'UTC')::date;",
        invariant="I1 no row below the retention floor",
        why="a backfill of long ago makes a dropped day again, empty",
        tests=(f"{DAYS}::test_never_below_the_retention_floor",),
    ),
    Guard(
        name="floor-first",
        file="bucketd/scheduler/retainer.py",
        text="if day.expired and not rose:  # guard: floor-first",
        instead="if day.expired:",
        invariant="I1 no row below the retention floor",
        why="a day is dropped while a statement that passed the old floor still writes there",
        tests=("tests/scheduler/test_retainer.py::test_the_floor_rises_first_and_days_go_a_pass_later",),
    ),
    Guard(
        name="floor-rises",
        file=SPINE,
        text="new.floor := greatest(old.floor, new.floor);  -- guard: floor-rises",
        instead="",
        invariant="I1, I3 what was counted stays counted",
        why="a writer that sets an older floor brings slots back that are counted in a row",
        tests=("tests/store/test_trigger.py::test_the_floor_only_rises_and_that_is_no_edit",),
    ),
)
