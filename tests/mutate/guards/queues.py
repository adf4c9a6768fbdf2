"""Step 2, bucket to queue: what leaves a bucket, when, and by whose hand."""

from tests.mutate.guard import Guard

DRAIN = "store/lua/drain.lua"
SCRIPTS = "tests/store/test_scripts.py"

GUARDS = (
    Guard(
        name="fence",
        file=DRAIN,
        text="if ARGV[8] == '1' then -- guard: fence",
        instead="if false then",
        invariant="I9 no effect of an old epoch after a newer one",
        why="a zombie drains, and a drain of an emptied Redis passes for one of a bucket that is through",
        tests=(
            f"{SCRIPTS}::test_a_drain_compares_epoch_token_and_plan",
            "tests/scheduler/test_ownership.py::test_a_zombie_forfeits_what_a_newer_owner_fenced",
        ),
    ),
    Guard(
        name="early-drain",
        file=DRAIN,
        text="'-inf', ARGV[4], 'LIMIT', 0, room) -- guard: early-drain",
        instead="'-inf', '+inf', 'LIMIT', 0, room)",
        invariant="I4 never early",
        why="runners hold and ask about fires of minutes that have not begun",
        tests=(
            f"{SCRIPTS}::test_never_early_and_the_next_due_time_is_told",
            "tests/scheduler/test_drainer.py::test_never_early_and_asleep_until_the_next_due_time",
        ),
    ),
    Guard(
        name="queue-cap",
        file=DRAIN,
        text="local room = math.min(tonumber(ARGV[5]), tonumber(ARGV[6]) - depth) -- guard: queue-cap",
        instead="local room = tonumber(ARGV[5])",
        invariant="I12 queues are bounded",
        why="Redis fills up while runners are away",
        tests=(f"{SCRIPTS}::test_the_cap_of_the_queue_is_exact_and_what_is_beyond_stays",),
    ),
    Guard(
        name="xadd-first",
        file=DRAIN,
        text="""\
    redis.call('XADD', KEYS[3], '*', 'm', cmsgpack.pack(message), 'c', total, 'n', #fires)
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, #fires - 1) -- guard: xadd-first
""",
        instead="""\
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, #fires - 1)
    redis.call('XADD', KEYS[3], '*', 'm', cmsgpack.pack(message), 'c', total, 'n', #fires)
""",
        invariant="I3 nothing due is lost on its way",
        why="a script that stops between the two has taken fires out of the bucket and put them nowhere",
        tests=(f"{SCRIPTS}::test_xadd_comes_before_zrem",),
    ),
    Guard(
        name="watermark",
        file="bucketd/scheduler/drainer.py",
        text="        # guard: watermark: ",
        instead="""\
        from bucketd.store import settle
        async with node.pool.connection() as connection:
            for partition, _ in due:
                await settle.advance(connection, [partition.id], now_ms // 1000, partition.feed_snapshot)
        # """,
        invariant="I8 settled_through never lies",
        why="fires that were drained and then lost with Redis, or refused, are never looked for",
        tests=("tests/scheduler/test_settler.py::test_it_waits_for_buckets_queue_and_runners",),
    ),
)
