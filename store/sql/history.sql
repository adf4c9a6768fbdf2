-- name: get
-- One run by its key.
select r.schedule_id, r.scheduled_at, s.name, r.tenant, t.name, r.status::text, r.origin::text, r.attempt, r.missed, r.reason,
    r.http_status, r.failures::text, nullif(r.wake_at, 'infinity'), r.started_at, r.finished_at, r.background, r.jitter_offset_s
from bucketd.runs r
left join bucketd.schedules s on s.id = r.schedule_id
left join bucketd.targets t on t.target_id = r.target_id
where r.scheduled_at = %(at)s::timestamptz and r.schedule_id = %(id)s::uuid

-- name: scan
-- The next stretch of runs, newest first, along the primary key; of it the runs that fit. The first row is the stretch itself: how
-- many rows it had and where it ended. So a rare run costs bounded work a statement, however many rows lie around it.
with stretch as materialized (
    select r.* from bucketd.runs r
    where r.scheduled_at >= %(from_at)s::timestamptz and r.scheduled_at < %(until_at)s::timestamptz
        and (%(after_at)s::timestamptz is null or (r.scheduled_at, r.schedule_id) < (%(after_at)s::timestamptz, %(after_id)s::uuid))
    order by r.scheduled_at desc, r.schedule_id desc limit %(scan)s::integer
), fitting as (
    select r.* from stretch r
    where (%(ids)s::uuid[] is null or r.schedule_id = any(%(ids)s::uuid[]))
        and (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
        and (%(target_id)s::integer is null or r.target_id = %(target_id)s::integer)
        and (%(statuses)s::text[] is null or r.status::text = any(%(statuses)s::text[]))
    order by r.scheduled_at desc, r.schedule_id desc limit %(limit)s::integer
)
(select e.schedule_id, e.scheduled_at, null, null, null, null, null, null, (select count(*) from stretch)::integer, null, null, null,
    null, null, null, null, null
from (select schedule_id, scheduled_at from stretch order by scheduled_at, schedule_id limit 1) e)
union all
(select r.schedule_id, r.scheduled_at, s.name, r.tenant, t.name, r.status::text, r.origin::text, r.attempt, r.missed, r.reason,
    r.http_status, r.failures::text, nullif(r.wake_at, 'infinity'), r.started_at, r.finished_at, r.background, r.jitter_offset_s
from fitting r
left join bucketd.schedules s on s.id = r.schedule_id
left join bucketd.targets t on t.target_id = r.target_id
order by r.scheduled_at desc, r.schedule_id desc)

-- name: waiting
-- Runs that wait for a wake-up, newest first, out of the partial index: few, wherever they lie.
select r.schedule_id, r.scheduled_at, s.name, r.tenant, t.name, r.status::text, r.origin::text, r.attempt, r.missed, r.reason,
    r.http_status, r.failures::text, nullif(r.wake_at, 'infinity'), r.started_at, r.finished_at, r.background, r.jitter_offset_s
from bucketd.runs r
left join bucketd.schedules s on s.id = r.schedule_id
left join bucketd.targets t on t.target_id = r.target_id
where r.wake_at is not null
    and (%(from_at)s::timestamptz is null or r.scheduled_at >= %(from_at)s::timestamptz)
    and (%(until_at)s::timestamptz is null or r.scheduled_at < %(until_at)s::timestamptz)
    and (%(after_at)s::timestamptz is null or (r.scheduled_at, r.schedule_id) < (%(after_at)s::timestamptz, %(after_id)s::uuid))
    and (%(ids)s::uuid[] is null or r.schedule_id = any(%(ids)s::uuid[]))
    and (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
    and (%(target_id)s::integer is null or r.target_id = %(target_id)s::integer)
    and r.status::text = any(%(statuses)s::text[])
order by r.scheduled_at desc, r.schedule_id desc limit %(limit)s::integer

-- name: ids
-- Ids of the schedules of this name, of one tenant or of all.
select id from bucketd.schedules
where (%(tenant)s::text is null or tenant = %(tenant)s::text) and name = %(name)s::text limit 1000

-- name: cancel
-- Ends a run that is not final. One that a runner holds is fenced: its claim is gone, so its result will be discarded.
update bucketd.runs set status = 'cancelled', claim = null, wake_at = null, finished_at = bucketd.bucketd_now(), reason = 'cancelled'
where scheduled_at = %(at)s::timestamptz and schedule_id = %(id)s::uuid
    and status in ('running', 'retrying', 'deferred', 'waiting', 'held')
returning schedule_id
