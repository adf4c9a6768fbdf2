-- name: take
-- Claims what waits and is due: retries, triggers, backfills, what settling deferred, what a dead runner left. Live work first;
-- background rows get half of the room that is left. Each row gets its verdict in the same update: it runs (attempt + 1), or is
-- parked (hold), dead (no attempt left; a dead letter is written) or cancelled (its schedule is gone). Answers a line for each
-- row taken; only those with status running are the caller's.
with clock as materialized (
    select bucketd.bucketd_now() as now
), state as materialized (
    select k.now from clock k
    where exists (select from bucketd.runners r where r.runner_id = %(runner)s::uuid and r.dead_at is null
        and r.heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second')
), pinned as materialized (
    select * from bucketd.holds for key share  -- whoever releases waits until what is parked here is there to be found
), held as materialized (
    select coalesce(bool_or(scope = 'all'), false) as everything,
        coalesce(array_agg(tenant) filter (where scope = 'tenant'), '{}') as tenants,
        coalesce(array_agg(target_id) filter (where scope = 'target'), '{}') as targets
    from pinned
), live as materialized (
    select scheduled_at, schedule_id, attempt, failures, reason, tenant, target_id
    from bucketd.runs
    where not background and wake_at <= (select now from state) and claim is null
    order by wake_at limit %(room)s::int for update skip locked
), late as materialized (
    select scheduled_at, schedule_id, attempt, failures, reason, tenant, target_id
    from bucketd.runs
    where background and wake_at <= (select now from state) and claim is null
    order by wake_at limit (select (%(room)s::int - count(*) + 1) / 2 from live) for update skip locked
), due as materialized (
    select d.*, s.id is not null as exists_, s.name, s.payload, s.timeout_s, s.target_id as goes_to, t.revision,
        case
            when s.id is null then 'cancelled'
            when h.everything or d.tenant = any(h.tenants) or s.target_id = any(h.targets) then 'held'
            when d.attempt >= t.max_attempts and d.reason is distinct from 'replayed' then 'dead'
            else 'running' end::bucketd.run_status as verdict
    from (select * from live union all select * from late) d
    cross join held h
    left join bucketd.schedules s on s.id = d.schedule_id
    left join bucketd.targets t on t.target_id = s.target_id
    order by d.scheduled_at, d.schedule_id
), taken as (
    update bucketd.runs r
    set status = d.verdict,
        claim = case d.verdict when 'running' then %(claim)s::bigint end,
        attempt = d.attempt + (d.verdict = 'running')::int,
        wake_at = case d.verdict when 'held' then 'infinity'::timestamptz end,
        started_at = case d.verdict when 'running' then k.now else r.started_at end,
        finished_at = case when d.verdict in ('dead', 'cancelled') then k.now end,
        target_id = coalesce(d.goes_to, r.target_id),
        reason = case d.verdict
            when 'cancelled' then 'deleted'
            when 'dead' then case when (d.failures -> -1 ->> 'attempt')::int = d.attempt then 'attempts' else 'runner_lost' end
            when 'running' then nullif(d.reason, 'replayed')      -- it buys one attempt
            else d.reason end
    from clock k cross join due d
    where r.scheduled_at = d.scheduled_at and r.schedule_id = d.schedule_id
    returning r.scheduled_at, r.schedule_id, r.attempt, r.status, r.reason, r.failures, r.finished_at, r.tenant, r.target_id,
        d.name, d.payload, d.timeout_s, d.revision
), letters as (
    insert into bucketd.dead_letters (schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempts, failures, died_at)
    select schedule_id, scheduled_at, tenant, name, target_id, payload, reason, attempt, failures, finished_at
    from taken where status = 'dead'
    on conflict (schedule_id, scheduled_at) do update set target_id = excluded.target_id, payload = excluded.payload,
        reason = excluded.reason, attempts = excluded.attempts, failures = excluded.failures, died_at = excluded.died_at
), claimed as (
    insert into bucketd.claims (claim, runner_id, instants, created_at)
    select %(claim)s::bigint, %(runner)s::uuid, array(select distinct scheduled_at from taken where status = 'running'), k.now
    from clock k where exists (select from taken where status = 'running')
)
select schedule_id, scheduled_at, attempt, status::text, tenant, name, target_id, timeout_s,
    case when status = 'running' then payload end as payload, revision
from taken
