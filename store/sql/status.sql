-- name: read
-- The state of the cluster in one row. Counts of runs go through the partial index or a short stretch of the key, and stop at a
-- bound; nothing scans runs.
select bucketd.bucketd_now(),
    (select count(*) from bucketd.schedules),
    (select count(*) from bucketd.schedules where not paused),
    (select jsonb_object_agg(status, n)::text from (select u.status::text, count(*) as n from (
        select status from bucketd.runs where wake_at is not null limit %(bound)s::integer) u group by 1) by_status),
    (select count(*) from (select from bucketd.runs where wake_at <= bucketd.bucketd_now() limit %(bound)s::integer) d),
    (select count(*) from bucketd.claims),
    (select jsonb_object_agg(status, n)::text from (select u.status::text, count(*) as n from (
        select status from bucketd.runs where scheduled_at > (select bucketd.bucketd_now() - interval '1 minute')
            and scheduled_at <= (select bucketd.bucketd_now()) limit %(bound)s::integer) u group by 1) last_minute),
    (select count(*) from bucketd.runners where dead_at is null
        and heartbeat_at > bucketd.bucketd_now() - %(dead_after_s)s::float8 * interval '1 second'),
    (select count(distinct owner) from bucketd.partitions),
    (select count(*) from bucketd.partitions where owner is null),
    (select min(settled_through) from bucketd.partitions),
    (select count(*) from bucketd.backfills where finished_at is null),
    (select count(*) from (select from bucketd.dead_letters limit %(bound)s::integer) l),
    (select count(*) from bucketd.holds where kind = 'user'),
    (select count(*) from bucketd.specs where error is not null)

-- name: owners
-- Who owns each partition, in the order of partitions.
select owner from bucketd.partitions order by partition_id

-- name: lateness
-- How late first attempts started, of the fires of the last seconds: along the primary key, of a short and bounded stretch, so it is
-- cheap at any rate of fires.
select percentile_disc(0.5) within group (order by late_s), percentile_disc(0.99) within group (order by late_s)
from (
    select extract(epoch from started_at - scheduled_at)::float8 - jitter_offset_s as late_s from bucketd.runs
    where scheduled_at > bucketd.bucketd_now() - make_interval(secs => %(window_s)s::int)
        and scheduled_at <= bucketd.bucketd_now() and origin = 'fire' and attempt = 1 and started_at is not null
    limit %(bound)s::int) r
