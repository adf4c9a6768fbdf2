-- name: succeeded
-- Step 5, the common case: runs that ended well. Answers how many rows were still this attempt's; the rest were fenced.
-- By whole keys, here and below, with no bounds on scheduled_at beside them: in a young day, of which statistics say little, the
-- planner then went through all keys between the bounds for each row (300 ms for 2,000 instead of 18).
-- `spent`: claims that have no other open run; they go with their last rows.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as materialized (
    select id, at, attempt, claim, http_status
    from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(attempts)s::smallint[], %(claims)s::bigint[], %(statuses)s::smallint[])
        u(id, at, attempt, claim, http_status)
    order by at, id
), done as (
    update bucketd.runs r
    set status = 'succeeded', claim = null, finished_at = k.now, http_status = e.http_status
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id
        and r.attempt = e.attempt  -- guard: attempt-of-success
        and r.claim = e.claim  -- guard: claim-of-success
    returning 1
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*) from done

-- name: own_retries
-- Of these schedules those that say themselves how their runs are retried: asked for the few that failed, not for every fire.
select id, max_attempts, retry_base_s::float8, retry_cap_s::float8 from bucketd.schedules
where id = any(%(ids)s::uuid[]) and num_nonnulls(max_attempts, retry_base_s, retry_cap_s) > 0

-- name: failed
-- Step 5, failures: the next attempt is put into wake_at (delay drawn by the runner), or the run is dead (no delay) and leaves
-- a dead letter with its payload. Answers as `succeeded`.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as materialized (
    select * from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(attempts)s::smallint[], %(claims)s::bigint[],
        %(statuses)s::smallint[], %(delays)s::float8[], %(reasons)s::text[], %(errors)s::text[])
        u(id, at, attempt, claim, http_status, delay_s, reason, error)
    order by at, id
), done as (
    update bucketd.runs r
    set status = case when e.delay_s is null then 'dead' else 'retrying' end::bucketd.run_status,
        claim = null,
        wake_at = k.now + e.delay_s * interval '1 second',  -- guard: drawn-delay
        finished_at = case when e.delay_s is null then k.now end,
        http_status = e.http_status,
        reason = coalesce(e.reason, r.reason),
        failures = coalesce(r.failures, '[]') || bucketd.failure(r.attempt, r.started_at, k.now, e.http_status, e.error)
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id
        and r.attempt = e.attempt  -- guard: attempt-of-failure
        and r.claim = e.claim  -- guard: claim-of-failure
    returning r.schedule_id, r.scheduled_at, r.tenant, r.target_id, r.attempt, r.failures, r.finished_at, r.reason, r.status
), letters as (
    insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, failures, died_at)
    select d.schedule_id, d.scheduled_at, d.tenant, s.name, d.target_id, s.payload, d.reason, d.attempt, d.failures, d.finished_at
    from done d join bucketd.schedules s on s.id = d.schedule_id
    where d.status = 'dead'
    on conflict (schedule_id, scheduled_at) do update set target_id = excluded.target_id, payload = excluded.payload,
        reason = excluded.reason, attempts = excluded.attempts, failures = excluded.failures, died_at = excluded.died_at
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*), (select bucketd.keep_slots(array_agg(schedule_id), array_agg(scheduled_at)) from done where status = 'retrying')
from done

-- name: accepted
-- Runs that go on at their targets, after a 202: nobody holds them, and wake_at is when their end must have been reported. One
-- whose end was reported before this came is not the writer's any more. Answers as `succeeded`.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as materialized (
    select id, at, attempt, claim, within_s
    from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(attempts)s::smallint[], %(claims)s::bigint[], %(within)s::int[])
        u(id, at, attempt, claim, within_s)
    order by at, id
), done as (
    update bucketd.runs r
    set claim = null, wake_at = k.now + e.within_s * interval '1 second', http_status = 202
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id
        and r.attempt = e.attempt  -- guard: attempt-of-acceptance
        and r.claim = e.claim  -- guard: claim-of-acceptance
    returning r.schedule_id, r.scheduled_at
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*), (select bucketd.keep_slots(array_agg(schedule_id), array_agg(scheduled_at)) from done)
from done

-- name: give_back
-- Runs that were claimed and never called (a stopping or crowded runner): anybody may take them now. The attempt was not made,
-- so its number is free again. Answers as `succeeded`.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as materialized (
    select id, at, attempt, claim
    from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(attempts)s::smallint[], %(claims)s::bigint[]) u(id, at, attempt, claim)
    order by at, id
), done as (
    update bucketd.runs r
    set status = 'retrying', claim = null, wake_at = k.now, attempt = r.attempt - 1,
        reason = case when r.attempt > 1 then 'replayed' else r.reason end  -- whoever bought this attempt has it still
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id
        and r.attempt = e.attempt  -- guard: attempt-of-give-back
        and r.claim = e.claim  -- guard: claim-of-give-back
    returning 1
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*) from done

-- name: defer
-- Runs that were claimed and find no place, by cap, rate or a runner's share: taken when there is one (wake.take, by their reason),
-- or at the latest with wake_at. The attempt was not made, so its number is free again. Answers as `succeeded`.
with clock as materialized (
    select bucketd.bucketd_now() as now
), ended as materialized (
    select id, at, attempt, claim, reason
    from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(attempts)s::smallint[], %(claims)s::bigint[], %(reasons)s::text[])
        u(id, at, attempt, claim, reason)
    order by at, id
), done as (
    update bucketd.runs r
    set status = 'deferred', claim = null, attempt = r.attempt - 1, reason = e.reason,
        wake_at = k.now + (1 + random()) * %(within_s)s::float8 * interval '1 second'
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id
        and r.attempt = e.attempt  -- guard: attempt-of-deferral
        and r.claim = e.claim  -- guard: claim-of-deferral
    returning 1
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*) from done
