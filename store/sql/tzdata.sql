-- name: state
-- Which data the cluster's zones are computed with, since when, what is left to be moved from, and the clock.
select tzdata_version, tzdata_from, tzdata_at, tzdata_begun, extract(epoch from bucketd.bucketd_now())::float8 from bucketd.cluster

-- name: adopt
-- The cluster goes over to newer data, unless somebody was faster. From the first version of all there is nothing to move.
update bucketd.cluster set tzdata_version = %(version)s::text, tzdata_at = bucketd.bucketd_now(),
    tzdata_from = coalesce(tzdata_from, tzdata_version), tzdata_begun = null
where tzdata_version is not distinct from %(seen)s::text
returning tzdata_version

-- name: begin
-- Nobody plans by older data any more: what is written from now on need not be moved. A repeat keeps the first instant.
update bucketd.cluster set tzdata_begun = coalesce(tzdata_begun, bucketd.bucketd_now())
where tzdata_version = %(version)s::text and tzdata_from is not null
returning tzdata_begun

-- name: finish
-- Everything is moved.
update bucketd.cluster set tzdata_from = null, tzdata_begun = null where tzdata_version = %(version)s::text
returning tzdata_version

-- name: forget
-- Data of zones that no spec names. If one names such a zone meanwhile, they are stored again.
delete from bucketd.zones z where not exists (select from bucketd.specs s where s.tz = z.name)

-- name: used
-- Zones that specs name, each found by one step in the index however many specs name it, and their data as they were stored.
with recursive used(tz) as (
    (select tz from bucketd.specs where tz is not null order by tz limit 1)
    union all
    select (select s.tz from bucketd.specs s where s.tz is not null and s.tz > u.tz order by s.tz limit 1)
    from used u where u.tz is not null
)
select u.tz, z.tzif from used u left join bucketd.zones z on z.name = u.tz where u.tz is not null order by u.tz

-- name: unkept
-- Zones that specs name and whose data are not stored.
with recursive used(tz) as (
    (select tz from bucketd.specs where tz is not null order by tz limit 1)
    union all
    select (select s.tz from bucketd.specs s where s.tz is not null and s.tz > u.tz order by s.tz limit 1)
    from used u where u.tz is not null
)
select u.tz from used u where u.tz is not null and not exists (select from bucketd.zones z where z.name = u.tz)

-- name: keep
-- Stores the data of zones; `replace`: in place of older ones. Only while the cluster is at the version that they are of.
insert into bucketd.zones (name, tzif)
select n.name, n.tzif from bucketd.cluster c, unnest(%(names)s::text[], %(data)s::bytea[]) n(name, tzif)
where c.tzdata_version = %(version)s::text order by n.name
on conflict (name) do update set tzif = excluded.tzif where %(replace)s::bool and zones.tzif <> excluded.tzif

-- name: specs
-- Specs of a zone, by id after one.
select spec_id, rule from bucketd.specs where tz = %(zone)s::text and spec_id > %(after)s::int order by spec_id limit %(most)s::int

-- name: active
-- Schedules of a spec that are not paused, by partition after one, whole partitions at a time.
select s.id, s.tenant, s.name, s.spec_id, s.phase, s.jitter_offset_s, s.paused, s.partition_id,
    extract(epoch from s.starts_at)::float8, extract(epoch from s.ends_at)::float8, extract(epoch from s.timing_from)::float8,
    extract(epoch from greatest(s.floor, s.timing_from))::float8,
    (select extract(epoch from p.settled_through)::bigint from bucketd.partitions p where p.partition_id = s.partition_id)
from bucketd.schedules s
where s.spec_id = %(spec)s::int and not s.paused and s.partition_id > %(after)s::int
order by s.partition_id fetch first (%(most)s::int) rows with ties

-- name: paused
-- The same for those that are paused.
select s.id, s.tenant, s.name, s.spec_id, s.phase, s.jitter_offset_s, s.paused, s.partition_id,
    extract(epoch from s.starts_at)::float8, extract(epoch from s.ends_at)::float8, extract(epoch from s.timing_from)::float8,
    extract(epoch from greatest(s.floor, s.timing_from))::float8,
    (select extract(epoch from p.settled_through)::bigint from bucketd.partitions p where p.partition_id = s.partition_id)
from bucketd.schedules s
where s.spec_id = %(spec)s::int and s.paused and s.partition_id > %(after)s::int
order by s.partition_id fetch first (%(most)s::int) rows with ties

-- name: retime
-- A timing edit of schedules that hold for longer than the cluster has its new data; one that was moved or put since is left alone.
-- The floor rises past slots that were judged by the old data (null: none were). Not while an older version has slots that are due
-- yet, by a longer jitter: those lie below. In the order in which puts lock.
update bucketd.schedules s set retimes = s.retimes + 1, floor = greatest(s.floor, o.floor)
from (
    select s.id, case when not exists (select from bucketd.schedule_versions v where v.schedule_id = s.id
            and v.jitter_offset_s > s.jitter_offset_s and v.valid_until > v.valid_from
            and v.valid_until + v.jitter_offset_s * interval '1 second' > bucketd.bucketd_now())
        then to_timestamp(u.floor_s) end as floor
    from unnest(%(ids)s::uuid[], %(floors)s::bigint[]) u(id, floor_s)
    join bucketd.schedules s on s.id = u.id where s.timing_from < %(begun)s::timestamptz
    order by s.tenant, s.name for no key update of s
) o
where s.id = o.id
returning s.id

-- name: count
-- How many schedules name a zone, counted up to a bound.
select count(*) from (
    select from bucketd.specs p cross join lateral (
        select from bucketd.schedules s where s.spec_id = p.spec_id and not s.paused
        union all
        select from bucketd.schedules s where s.spec_id = p.spec_id and s.paused) s
    where p.tz = %(zone)s::text limit %(bound)s::int) c
