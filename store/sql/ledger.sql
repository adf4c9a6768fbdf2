-- name: runs
-- Every run with the name of its schedule, as an auditor reads it: what was promised to be written, against what a target saw.
select s.tenant, s.name, extract(epoch from r.scheduled_at)::float8, r.status::text, r.attempt::int, r.missed::int,
    extract(epoch from r.finished_at)::float8
from bucketd.runs r
join bucketd.schedules s on s.id = r.schedule_id;

-- name: owners
-- Which scheduler node owns how many partitions, and how far the slowest of those is settled.
select owner, count(*)::int, extract(epoch from min(settled_through))::float8
from bucketd.partitions where owner is not null
group by owner;

-- name: waiting
-- Rows that wait for a runner: retries, backfilled, recovered.
select count(*)::int from bucketd.runs where wake_at <= bucketd.bucketd_now();

-- name: runners
-- Process ids of runners that are believed alive.
select pid from bucketd.runners
where dead_at is null and heartbeat_at > bucketd.bucketd_now() - make_interval(secs => %(dead_after_s)s::float8);
