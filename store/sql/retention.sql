-- name: make_days
-- Yesterday's to the last day ahead; returns how many were missing.
select bucketd.make_days(bucketd.bucketd_now() - interval '1 day', bucketd.bucketd_now() + %(days_ahead)s::int * interval '1 day');

-- name: raise_floor
-- From now on nothing below is confirmed; days are dropped at a later pass, when no statement that began before can still insert.
update bucketd.cluster set
    retention_floor = greatest(retention_floor, f.floor), days_from = greatest(days_from, f.floor)
from (
    select date_trunc('day', bucketd.bucketd_now(), 'UTC') - %(retention_days)s::int * interval '1 day' as floor
) f
where retention_floor < f.floor
returning retention_floor;

-- name: days
-- The days of runs: table name, first instant, whether it lies below the floor, whether it is closed and lacks the index by schedule.
select t.relname, d.day, d.day + interval '1 day' <= c.retention_floor,
    d.day + interval '25 hours' < bucketd.bucketd_now()
        and not exists (select from pg_indexes i where i.schemaname = 'bucketd' and i.indexname = t.relname || '_schedule')
from pg_inherits h
join pg_class t on t.oid = h.inhrelid
cross join lateral (select (to_date(right(t.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' as day) d
cross join bucketd.cluster c
where h.inhparent = 'bucketd.runs'::regclass
order by d.day;

-- name: sweep
-- What hangs on days that are gone: closed versions, and one-shots whose only instant is below the floor.
with v as (
    delete from bucketd.schedule_versions where valid_until < (select retention_floor from bucketd.cluster)
)
delete from bucketd.schedules s using bucketd.specs p
where p.spec_id = s.spec_id and p.kind = 'at' and s.id in (
    select s2.id from bucketd.schedules s2 join bucketd.specs p2 on p2.spec_id = s2.spec_id and p2.kind = 'at'
    where s2.phase < extract(epoch from (select retention_floor from bucketd.cluster)) limit 10000);
