"""Who may work on a partition, and whose work counts."""

from tests.mutate.guard import Guard

SCRIPTS = "tests/store/test_scripts.py"
OWNERSHIP = "tests/scheduler/test_ownership.py"

GUARDS = (
    Guard(
        name="belief",
        file="bucketd/scheduler/cluster.py",
        text="if partition.believed_until > now]  # guard: belief",
        instead="]",
        invariant="I9 no old owner beside a new one",
        why="a node that slept past its lease goes on working beside its heir",
        tests=(f"{OWNERSHIP}::test_belief_ends_before_the_lease",),
    ),
    Guard(
        name="own-lease",
        file="store/lua/renew.lua",
        text="  if redis.call('GET', key) == ARGV[1] then -- guard: own-lease",
        instead="  if redis.call('GET', key) then",
        invariant="I9 no old owner beside a new one",
        why="a late renewal prolongs the lease of the new owner and believes that it is its own",
        tests=(f"{SCRIPTS}::test_leases_are_taken_renewed_and_released_by_their_holder_alone",),
    ),
    Guard(
        name="released-lease",
        file="store/lua/release.lua",
        text="  -- guard: released-lease\n  if redis.call('GET', key) == ARGV[1] then",
        instead="  if redis.call('GET', key) then",
        invariant="I9 no old owner beside a new one",
        why="who leaves late gives the lease of the new owner away",
        tests=(f"{SCRIPTS}::test_leases_are_taken_renewed_and_released_by_their_holder_alone",),
    ),
    Guard(
        name="fence-rises",
        file="store/lua/fence.lua",
        text="if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 0 end -- guard: fence-rises",
        instead="",
        invariant="I9 no effect of an old epoch after a newer one",
        why="an owner that took its epoch before its heir puts itself back at the fence",
        tests=(f"{SCRIPTS}::test_a_fence_is_raised_and_never_lowered",),
    ),
    Guard(
        name="epoch-above-fence",
        file="store/sql/partitions.sql",
        text="epoch = greatest(p.epoch, u.fence_epoch) + 1  -- guard: epoch-above-fence",
        instead="epoch = p.epoch + 1",
        invariant="I9 epochs never fall behind the fence",
        why="after a restore of Postgres every new owner is a zombie at its own fence",
        tests=(f"{OWNERSHIP}::test_the_new_epoch_is_above_the_fence_though_postgres_is_older",),
    ),
    Guard(
        name="planning-fence",
        file="store/lua/mark.lua",
        text="if ARGV[4] == '1' then -- guard: planning-fence",
        instead="if false then",
        invariant="I9 no effect of an old epoch after a newer one",
        why="a zombie's plan hides from the owner that Redis lost data",
        tests=(
            f"{OWNERSHIP}::test_a_zombies_plan_is_refused_and_moves_no_fence",
            f"{SCRIPTS}::test_a_mark_compares_too_and_leaves_a_foreign_fence_alone",
        ),
    ),
)
