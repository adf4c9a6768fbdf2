-- name: succeeded
-- Step 5, the common case: runs that ended well. Answers how many rows were still this attempt's; the rest were fenced.
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
    where r.scheduled_at = e.at and r.schedule_id = e.id and r.attempt = e.attempt and r.claim = e.claim
        and r.scheduled_at between (%(bounds)s::timestamptz[])[1] and (%(bounds)s::timestamptz[])[2]  -- prunes days once, not for every row
    returning 1
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*) from done

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
        wake_at = k.now + e.delay_s * interval '1 second',
        finished_at = case when e.delay_s is null then k.now end,
        http_status = e.http_status,
        reason = coalesce(e.reason, r.reason),
        failures = coalesce(r.failures, '[]') || jsonb_build_object('attempt', r.attempt,
            'at', to_char(k.now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'status', e.http_status, 'error', e.error)
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id and r.attempt = e.attempt and r.claim = e.claim
        and r.scheduled_at between (%(bounds)s::timestamptz[])[1] and (%(bounds)s::timestamptz[])[2]  -- prunes days once, not for every row
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
select count(*) from done

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
    set status = 'retrying', claim = null, wake_at = k.now, attempt = r.attempt - 1
    from clock k cross join ended e
    where r.scheduled_at = e.at and r.schedule_id = e.id and r.attempt = e.attempt and r.claim = e.claim
        and r.scheduled_at between (%(bounds)s::timestamptz[])[1] and (%(bounds)s::timestamptz[])[2]  -- prunes days once, not for every row
    returning 1
), gone as (
    delete from bucketd.claims where claim = any(%(spent)s::bigint[])
)
select count(*) from done
