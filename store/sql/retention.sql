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
-- The days of runs: table name, first instant, whether it lies below the floor, whether it is closed and lacks a valid index by
-- schedule, and how far a drop has come: null = attached, true = its detach was broken off, false = detached, not dropped yet.
select t.relname, d.day, d.day + interval '1 day' <= c.retention_floor,
    d.day + interval '25 hours' < bucketd.bucketd_now() and not exists (
        select from pg_class i join pg_index x on x.indexrelid = i.oid and x.indisvalid
        where i.relnamespace = t.relnamespace and i.relname = t.relname || '_schedule'),
    case when h.inhrelid is null then false when h.inhdetachpending then true end
from pg_class t
left join pg_inherits h on h.inhrelid = t.oid and h.inhparent = 'bucketd.runs'::regclass
cross join lateral (select (to_date(right(t.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' as day) d
cross join bucketd.cluster c
where t.relnamespace = 'bucketd'::regnamespace and t.relkind = 'r' and t.relname ~ '^runs_[0-9]{8}$'
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
