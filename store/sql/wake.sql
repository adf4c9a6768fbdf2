-- name: take
-- Claims what waits and is due: retries, triggers, backfills, what settling deferred, what a dead runner left; and of what waits for a
-- place (results.defer) as much as there are places. Live work first; background rows get half of the room that is left. Each row gets its verdict in the same update: it runs (attempt + 1), or is
-- parked (hold), dead (no attempt left; a dead letter is written) or cancelled (its schedule is gone). One that a target accepted and
-- did not complete in time has failed that attempt. Where runs must not overlap, one of each schedule asks for the slot (see slots);
-- the others wait a little. Without a slot, whoever is being called stands in the claims. Answers a line for each row taken; only
-- those with status running are the caller's, and those `overtaken` were cancelled by one of these.
with clock as materialized (
    select bucketd.bucketd_now() as now
), state as materialized (
    select k.now from clock k
    where exists (select from bucketd.runners r where r.runner_id = %(runner)s::uuid and r.dead_at is null  -- guard: waking-runner
        and r.heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second')
), pinned as materialized (
    select * from bucketd.holds for key share  -- whoever releases waits until what is parked here is there to be found
), held as materialized (
    select coalesce(bool_or(scope = 'all'), false) as everything,
        coalesce(array_agg(tenant) filter (where scope = 'tenant'), '{}') as tenants,
        coalesce(array_agg(target_id) filter (where scope = 'target'), '{}') as targets,
        coalesce(array_agg(target_id) filter (where scope = 'target' and kind = 'user'), '{}') as targets_of_users
    from pinned
), busy as materialized (
    -- Of each key with places, as many of its oldest. One whose wake_at is due is left to `live` and `late`: no row is chosen twice.
    select r.*, 'target' as queue
    from unnest(%(targets)s::int[], %(target_places)s::int[]) p(target_id, places) cross join lateral (
        select scheduled_at, schedule_id, status, origin, attempt, failures, reason, tenant, target_id
        from bucketd.runs
        where target_id = p.target_id and reason = 'target_busy' and wake_at > (select now from state)
        order by background, scheduled_at limit p.places for update skip locked) r
    union all
    select r.*, 'tenant' as queue
    from unnest(%(tenants)s::text[], %(tenant_places)s::int[]) p(tenant, places) cross join lateral (
        select scheduled_at, schedule_id, status, origin, attempt, failures, reason, tenant, target_id
        from bucketd.runs
        where tenant = p.tenant and reason = 'tenant_busy' and wake_at > (select now from state)
        order by background, scheduled_at limit p.places for update skip locked) r
), live as materialized (
    select scheduled_at, schedule_id, status, origin, attempt, failures, reason, tenant, target_id
    from bucketd.runs
    where not background and wake_at <= (select now from state) and claim is null  -- guard: wake-at
    order by wake_at limit (select greatest(0, %(room)s::int - count(*)) from busy) for update skip locked
), late as materialized (
    select scheduled_at, schedule_id, status, origin, attempt, failures, reason, tenant, target_id
    from bucketd.runs
    where background and wake_at <= (select now from state) and claim is null
    order by wake_at
    limit (select greatest(0, least(%(background)s::int, (%(room)s::int - count(*) + 1) / 2)) from (select from busy union all select from live) t)
    for update skip locked
), chosen as (
    -- Who waits for a place had bought the attempt that was then not made.
    select scheduled_at, schedule_id, status, origin, attempt, failures, tenant, target_id, queue,
        case when reason in ('target_busy', 'tenant_busy') then case when attempt > 0 then 'replayed' end else reason end as reason
    from (select *, null as queue from live union all select *, null from late union all select * from busy) d
), due as materialized (
    select d.*, s.id is not null as exists_, s.name, s.payload, s.timeout_s, s.target_id as goes_to, t.revision, s.overlap,
        d.status = 'running' as overdue, t.complete_within_s,
        coalesce(s.retry_base_s, t.retry_base_s) as retry_base_s, coalesce(s.retry_cap_s, t.retry_cap_s) as retry_cap_s,
        case
            when s.id is null then 'cancelled'
            when d.status = 'running' then case when d.attempt >= coalesce(s.max_attempts, t.max_attempts) then 'dead' else 'retrying' end
            when h.everything or d.tenant = any(h.tenants) or s.target_id = any(  -- guard: waking-hold
                case when d.reason = 'probe' then h.targets_of_users else h.targets end) then 'held'  -- a breaker asks by some runs
            when d.attempt >= coalesce(s.max_attempts, t.max_attempts) and d.reason is distinct from 'replayed' then 'dead'  -- guard: last-attempt
            else 'running' end::bucketd.run_status as verdict
    from chosen d
    cross join held h
    left join bucketd.schedules s on s.id = d.schedule_id
    left join bucketd.targets t on t.target_id = s.target_id
    order by d.scheduled_at, d.schedule_id
), asking as materialized (
    select distinct on (d.schedule_id) d.schedule_id, d.scheduled_at, case
            when d.overlap = 'cancel_running' and d.attempt = 0 then d.overlap
            when d.attempt > 0 or d.status = 'waiting' or d.origin in ('catch_up', 'backfill') then 'wait'
            else d.overlap end as rule,
        case when o.schedule_id is null then (
            select r.scheduled_at from (select distinct unnest(instants) as at from bucketd.claims) i cross join lateral (
                -- By the whole key, a look an instant: as a plain join it went through all the day's keys for each schedule.
                select scheduled_at from bucketd.runs
                where scheduled_at = i.at and schedule_id = d.schedule_id and status = 'running' and i.at <> d.scheduled_at limit 1) r
            limit 1) end as without_slot
    from due d left join bucketd.slots o on o.schedule_id = d.schedule_id
    where d.verdict = 'running' and d.overlap <> 'allow'
    order by d.schedule_id, (o.scheduled_at = d.scheduled_at) desc nulls last,
        case when d.overlap = 'cancel_running' then d.scheduled_at end desc, d.scheduled_at
), asked as (
    insert into bucketd.slots as o (schedule_id, asked_at, rule, scheduled_at, taken_from)
    select schedule_id, scheduled_at, rule, scheduled_at, without_slot from asking
    on conflict (schedule_id) do update set asked_at = excluded.asked_at, rule = excluded.rule
    returning o.schedule_id, o.asked_at, o.taken_from, o.scheduled_at > o.asked_at as newer_has_it, case
        when o.scheduled_at = o.asked_at then 'running' when o.queued_at = o.asked_at or o.rule = 'wait' then 'waiting'
        else 'skipped' end as status
), judged as materialized (
    select d.*, case
            when d.verdict <> 'running' or d.overlap = 'allow' then d.verdict::text
            when (d.schedule_id, d.scheduled_at) in (select schedule_id, asked_at from asked where status = 'running') then 'running'
            when (d.schedule_id, d.scheduled_at) in (select schedule_id, asked_at from asked where status = 'skipped') then 'skipped'
            when d.overlap = 'cancel_running' and d.attempt > 0 and (d.schedule_id, d.scheduled_at) in (
                select schedule_id, asked_at from asked where newer_has_it) then 'cancelled'
            else 'waiting' end::bucketd.run_status as fate,
        row_number() over (partition by d.schedule_id order by d.scheduled_at) as nth
    from due d
), taken as (
    update bucketd.runs r
    set status = d.fate,
        claim = case d.fate when 'running' then %(claim)s::bigint end,
        attempt = d.attempt + (d.fate = 'running')::int,  -- guard: attempt-spent
        wake_at = case d.fate when 'held' then 'infinity'::timestamptz
            -- The longer the one before them has been going on, the longer until the next look; the oldest looks first.
            when 'waiting' then k.now + interval '1 second' * least(10, d.nth * greatest(0.1, least(5, 0.5 * coalesce((
                select extract(epoch from k.now - h.started_at) from bucketd.slots o cross join lateral (
                    select started_at from bucketd.runs
                    where scheduled_at = o.scheduled_at and schedule_id = o.schedule_id and status = 'running' limit 1) h
                where o.schedule_id = d.schedule_id), 0))))
            when 'retrying' then k.now + random() * least(d.retry_cap_s, d.retry_base_s * 2.0 ^ least(d.attempt - 1, 60))
                * interval '1 second' end,
        started_at = case d.fate when 'running' then k.now else r.started_at end,
        finished_at = case when d.fate in ('dead', 'cancelled', 'skipped') then k.now end,
        target_id = coalesce(d.goes_to, r.target_id),
        reason = case d.fate
            when 'cancelled' then case when d.exists_ then 'overlap' else 'deleted' end
            when 'skipped' then 'overlap'
            when 'dead' then case when d.overdue or (d.failures -> -1 ->> 'attempt')::int = d.attempt then 'attempts' else 'runner_lost' end
            when 'running' then nullif(nullif(d.reason, 'replayed'), 'probe')  -- each buys one attempt
            when 'held' then nullif(d.reason, 'probe')
            else d.reason end,
        failures = case when not d.overdue then r.failures else coalesce(r.failures, '[]') || bucketd.failure(d.attempt, r.started_at, k.now, 202,
            coalesce('no completion within ' || d.complete_within_s || ' s', 'no completion in time')) end
    from clock k cross join judged d
    where r.scheduled_at = d.scheduled_at and r.schedule_id = d.schedule_id
    returning r.scheduled_at, r.schedule_id, r.attempt, r.status, r.reason, r.failures, r.finished_at, r.tenant, r.target_id,
        d.name, d.payload, d.timeout_s, d.revision, d.reason is not distinct from 'probe' as probe, d.queue, r.background,
        case when r.attempt = 1 and r.status = 'running' and r.origin in ('fire', 'late', 'settle')
            then extract(epoch from k.now - r.scheduled_at)::float8 - r.jitter_offset_s end as late_s
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
    case when status = 'running' then payload end as payload, revision, probe, queue, background, late_s
from taken
union all
select schedule_id, taken_from, 0, 'overtaken', '', '', 0, null, null, null, false, null, false, null from asked where taken_from is not null

-- name: busy_targets
-- Targets where runs wait for a place, after one of them, with their revisions. Leaps from key to key: costs those, not what waits.
with recursive found as (
    (select target_id from bucketd.runs where reason = 'target_busy' and wake_at is not null and target_id > %(after)s::int
    order by target_id limit 1)
    union all
    select (select r.target_id from bucketd.runs r where r.reason = 'target_busy' and r.wake_at is not null and r.target_id > f.target_id
        order by r.target_id limit 1)
    from found f where f.target_id is not null
)
select f.target_id, t.revision
from (select target_id from found where target_id is not null limit %(most)s::int) f
join bucketd.targets t on t.target_id = f.target_id

-- name: busy_tenants
-- The same of tenants.
with recursive found as (
    (select tenant from bucketd.runs where reason = 'tenant_busy' and wake_at is not null and tenant > %(after)s::text
    order by tenant limit 1)
    union all
    select (select r.tenant from bucketd.runs r where r.reason = 'tenant_busy' and r.wake_at is not null and r.tenant > f.tenant
        order by r.tenant limit 1)
    from found f where f.tenant is not null
)
select tenant from found where tenant is not null limit %(most)s::int
