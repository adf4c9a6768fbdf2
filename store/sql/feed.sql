-- name: snapshot
-- Where the change feed stands now, before anything was read from it.
select bucketd.history(), pg_current_snapshot()::text;

-- name: specs
-- Specs written since the cursor, late commits included: the cursor is a whole snapshot, so that each row is seen once.
select bucketd.history(), pg_current_snapshot()::text, null::int, null::text, null::text, null::int
union all
select null, null, spec_id, kind, rule, max_jitter_s from (
    select * from bucketd.specs where change_xid >= pg_snapshot_xmax(%(cursor)s::pg_snapshot)
        and change_xid < pg_snapshot_xmax(pg_current_snapshot())  -- a restored dump has ids that are not given out yet
    union all
    select * from bucketd.specs where change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot)))
) s;

-- name: all_specs
-- Every spec, and the cursor to go on from.
select bucketd.history(), pg_current_snapshot()::text, null::int, null::text, null::text, null::int
union all
select null, null, spec_id, kind, rule, max_jitter_s from bucketd.specs;

-- name: schedules
-- Schedules written since the cursor; at most `most`. The first row carries the new cursor.
select bucketd.history(), pg_current_snapshot()::text, null::uuid, null::smallint, null::int, null::bigint, null::int, null::bytea, null::bool, null::float8
union all
(select null, null, id, partition_id, spec_id, phase, jitter_offset_s, uuid_send(id) || int4send(timing_version) || int2send(tenant_hash), paused,
    extract(epoch from greatest(floor, timing_from))::float8 from (
    select * from bucketd.schedules where change_xid >= pg_snapshot_xmax(%(cursor)s::pg_snapshot)
        and change_xid < pg_snapshot_xmax(pg_current_snapshot())  -- a restored dump has ids that are not given out yet
    union all
    select * from bucketd.schedules where change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot)))  -- guard: fed-late-commits
) s limit %(most)s::int);
