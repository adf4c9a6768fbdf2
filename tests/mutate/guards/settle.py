"""Settling: every due occurrence gets a row or is counted, once, by the owner of the epoch."""

from tests.mutate.guard import Guard

SETTLE = "store/sql/settle.sql"
SETTLER = "bucketd/scheduler/settler.py"
TESTS = "tests/scheduler/test_settler.py"

GUARDS = (
    Guard(
        name="settling",
        file="bucketd/scheduler/node.py",
        text="if (await self.settler.run_once()).owed:  # guard: settling",
        instead="if False:",
        invariant="I3 every due occurrence has a row or is counted",
        why="what was lost on its way stays lost",
        tests=("tests/cluster/test_settle.py::test_minutes_without_a_node_settle_in_one_pass_and_stay_settled",),
    ),
    Guard(
        name="epoch",
        file=SETTLE,
        text="where p.epoch = u.epoch or not %(compare)s::bool  -- guard: epoch",
        instead="where true",
        invariant="I8, I9 the watermark is its owner's",
        why="a zombie moves the watermark by what it has not seen",
        tests=(f"{TESTS}::test_an_older_epoch_settles_nothing",),
    ),
    Guard(
        name="settled-once",
        file=SETTLER,
        text="current = [p for p in group if p.id in marks and marks[p.id][1:3] == (from_s, cursor)]  # guard: settled-once",
        instead="current = [p for p in group if p.id in marks]",
        invariant="I8 the watermark never goes back",
        why="a window that another node has judged meanwhile is judged again, from a state that has passed",
        tests=(f"{TESTS}::test_a_window_that_another_has_settled_is_not_settled_again",),
    ),
    Guard(
        name="one-transaction",
        file=SETTLER,
        text="async with self._node.pool.connection() as connection, connection.transaction():  # guard: one-transaction",
        instead="async with self._node.pool.connection() as connection:",
        invariant="I8 settled_through never lies",
        why="verdicts stand without the watermark: the next pass counts what they count once more",
        tests=("tests/scheduler/test_settle_atomicity.py::test_verdicts_do_not_stand_without_their_watermark",),
    ),
    Guard(
        name="settled-floor",
        file=SETTLE,
        text="    and to_timestamp(u.at_s) >= s.floor  -- guard: settled-floor\n",
        instead="",
        invariant="I3 nothing else has a row",
        why="what lay in a pause, or is counted in a row, is found missing and runs",
        tests=(
            f"{TESTS}::test_verdicts_of_each_policy_in_one_pass_that_stay",
            "tests/scheduler/test_settle_pauses.py::test_what_lay_in_a_pause_is_not_found_missing",
        ),
    ),
    Guard(
        name="fed-late-commits",
        file="store/sql/feed.sql",
        text="select * from bucketd.schedules where change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot)))"
        "  -- guard: fed-late-commits",
        instead="select * from bucketd.schedules where false",
        invariant="I3 every due occurrence has a row or is counted",
        why="a put whose transaction was open when the feed was read is not planned, and its first minutes come late",
        tests=("tests/store/test_feed.py::test_a_late_commit_is_seen_when_it_commits",),
    ),
    Guard(
        name="late-commits",
        file=SETTLE,
        text="change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot)))  -- guard: late-commits",
        instead="change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot))) and false",
        invariant="I3 every due occurrence has a row or is counted",
        why="a schedule whose transaction was open when its minute was settled never gets that minute's runs",
        tests=(f"{TESTS}::test_a_commit_behind_the_watermark_is_settled_with_the_next_window",),
    ),
    Guard(
        name="pinned-holds",
        file="bucketd/scheduler/judge.py",
        text="await settle.pin_holds(connection)  # guard: pinned-holds",
        instead="pass",
        invariant="I7 no row is held by nothing",
        why="a hold that ends between verdict and row leaves a run that nobody releases",
        tests=(f"{TESTS}::test_a_hold_that_is_released_while_it_is_settled_keeps_nothing_for_ever",),
    ),
    Guard(
        name="verdict-order",
        file=SETTLE,
        text="order by u.at_s, u.id  -- guard: verdict-order\n",
        instead="",
        invariant="I6 every batch is decided",
        why="settling and a runner that confirms the same keys wait for each other",
        tests=(
            "tests/runner/test_lock_order.py::test_a_confirm_and_verdicts_of_the_same_keys_never_wait_for_each_other",
        ),
    ),
)
