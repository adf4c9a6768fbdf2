-- name: find
-- A run as a report about it has to know it: how far it is, what its target allows, and how it is retried.
select r.status::text, r.attempt, r.claim is not null, r.target_id, r.wake_at, r.failures::text, t.complete_within_s,
    coalesce(s.max_attempts, t.max_attempts, 1), coalesce(s.retry_base_s, t.retry_base_s, 0), coalesce(s.retry_cap_s, t.retry_cap_s, 0)
from bucketd.runs r
left join bucketd.targets t on t.target_id = r.target_id
left join bucketd.schedules s on s.id = r.schedule_id
where r.scheduled_at = %(at)s::timestamptz and r.schedule_id = %(id)s::uuid

-- name: extend
-- The attempt goes on: its end is expected within so many seconds from now (null: when it was expected). It is nobody's from here on,
-- also if its runner has not written the 202 yet, or never will.
with extended as (
    update bucketd.runs set claim = null, wake_at = coalesce(bucketd.bucketd_now() + %(within_s)s::integer * interval '1 second', wake_at)
    where scheduled_at = %(at)s::timestamptz and schedule_id = %(id)s::uuid
        and attempt = %(attempt)s::integer  -- guard: attempt-of-heartbeat
        and status = 'running'  -- guard: end-of-heartbeat
    returning wake_at
)
select wake_at, bucketd.keep_slots(array[%(id)s::uuid], array[%(at)s::timestamptz]) from extended

-- name: succeed
-- The attempt ended well. A runner that still holds it will find that it does not.
update bucketd.runs set status = 'succeeded', claim = null, wake_at = null, finished_at = bucketd.bucketd_now(),
    http_status = case when claim is null then http_status end
where scheduled_at = %(at)s::timestamptz and schedule_id = %(id)s::uuid
    and attempt = %(attempt)s::integer  -- guard: attempt-of-completion
    and status = 'running'  -- guard: end-of-completion
returning status::text, wake_at

-- name: fail
-- The attempt failed: another one after the delay, or (no delay) the run is dead and leaves a dead letter with its payload.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as (
    update bucketd.runs r
    set status = case when %(delay_s)s::float8 is null then 'dead' else 'retrying' end::bucketd.run_status,
        claim = null,
        wake_at = k.now + %(delay_s)s::float8 * interval '1 second',
        finished_at = case when %(delay_s)s::float8 is null then k.now end,
        http_status = case when r.claim is null then r.http_status end,
        reason = coalesce(%(reason)s::text, r.reason),
        failures = coalesce(r.failures, '[]') || bucketd.failure(r.attempt, r.started_at, k.now, 202, %(error)s::text)
    from clock k
    where r.scheduled_at = %(at)s::timestamptz and r.schedule_id = %(id)s::uuid
        and r.attempt = %(attempt)s::integer  -- guard: attempt-of-reported-failure
        and r.status = 'running'  -- guard: end-of-reported-failure
    returning r.schedule_id, r.scheduled_at, r.tenant, r.target_id, r.attempt, r.failures, r.finished_at, r.reason, r.status, r.wake_at
), letters as (
    insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, failures, died_at)
    select e.schedule_id, e.scheduled_at, e.tenant, s.name, e.target_id, s.payload, e.reason, e.attempt, e.failures, e.finished_at
    from ended e join bucketd.schedules s on s.id = e.schedule_id
    where e.status = 'dead'
    on conflict (schedule_id, scheduled_at) do update set target_id = excluded.target_id, payload = excluded.payload,
        reason = excluded.reason, attempts = excluded.attempts, failures = excluded.failures, died_at = excluded.died_at
)
select status::text, wake_at,
    case status when 'retrying' then bucketd.keep_slots(array[schedule_id], array[scheduled_at]) end
from ended
