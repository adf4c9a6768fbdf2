-- name: clock
-- Postgres's own clock, epoch seconds, and whether the cluster's is the same.
select extract(epoch from clock_timestamp())::float8, (select clock_offset = '0' from bucketd.cluster)

-- name: migrations
-- Names of the migrations that were applied.
select name from bucketd.migrations order by name

-- name: rights
-- Tables that this role may not read and write.
select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'bucketd' and c.relkind in ('r', 'p') and not (
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
    and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
order by 1

-- name: ownership
-- This role, who owns the days of runs, whether the role is a member of that one, and whether it may create in the schema.
select current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'usage'),
    has_schema_privilege('bucketd', 'create')
from pg_catalog.pg_class c where c.oid = 'bucketd.runs'::regclass

-- name: days
-- Up to where days of runs were made, how far ahead that is in seconds, and which of them are missing.
select c.days_through, extract(epoch from c.days_through - bucketd.bucketd_now())::float8, array(
    select to_char(d, 'YYYY-MM-DD')
    from generate_series(c.days_from at time zone 'UTC', c.days_through at time zone 'UTC' - interval '1 day',
        interval '1 day') d
    where not exists (
        select from pg_catalog.pg_inherits i where i.inhparent = 'bucketd.runs'::regclass
            and i.inhrelid = to_regclass('bucketd.runs_' || to_char(d, 'YYYYMMDD')))
    order by d)
from bucketd.cluster c

-- name: settled
-- How far the partition that is furthest behind is settled behind now, in seconds.
select extract(epoch from bucketd.bucketd_now() - min(settled_through))::float8 from bucketd.partitions

-- name: overdue
-- Runs that could have been taken for over a minute, counted up to a bound.
select count(*) from (
    select from bucketd.runs where not background and wake_at < bucketd.bucketd_now() - interval '60 s'
    limit %(bound)s::int) r

-- name: runners
-- Runners whose heartbeat is young enough.
select count(*) from bucketd.runners
where dead_at is null and heartbeat_at > bucketd.bucketd_now() - make_interval(secs => %(dead_after_s)s::float8)
