-- name: confirm
-- Step 3: a row for each fire that may run now, the claim that holds them, and what to call. One statement, one commit.
-- Answers a line for each fire whose schedule exists: its place in the arrays, a verdict (VERDICTS in store/confirm.py, 0 =
-- may run), whether this statement made the row, and the call's data. Keys go in by (at, id): two batches in different order
-- would deadlock. The clock is read once. In `made` lookups are lazy: it is searched only if some row was there already
-- (joining it back to `seen` would be quadratic).
-- Overlap: a run asks for its schedule's slot if its call can last until the next occurrence (or a minute less, in which a dead
-- runner is found out), or if somebody has asked before; and after an edit, when the distance to the one before is not known. Slots
-- before runs. Of several fires of a schedule the oldest asks; the others are to come again. Where rows wait for a place already
-- (busy), this one joins them at once.
with clock as materialized (
    select bucketd.bucketd_now() as now
), state as materialized (
    select k.now, extract(epoch from k.now)::float8 as now_s, greatest(c.retention_floor, c.days_from) as from_at, c.days_through,
        exists (select from bucketd.runners r where r.runner_id = %(runner)s::uuid and r.dead_at is null
            and r.heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second') as alive
    from clock k cross join bucketd.cluster c
), held as materialized (
    select coalesce(bool_or(scope = 'all'), false) as everything, count(*) > 0 as something,
        coalesce(array_agg(tenant) filter (where scope = 'tenant'), '{}') as tenants,
        coalesce(array_agg(target_id) filter (where scope = 'target'), '{}') as targets
    from bucketd.holds
), fire as (
    select n, id, version, at4::bigint & 4294967295 as at_s, next4::bigint & 4294967295 as next_s,
        to_timestamp((at4::bigint & 4294967295)::float8) as at
    from unnest(%(ids)s::uuid[], %(versions)s::int[], %(ats)s::int[], %(nexts)s::int[]) with ordinality u(id, version, at4, next4, n)
), seen as materialized (
    select f.n::int as n, f.id, f.at, s.tenant, s.name, s.target_id, s.timeout_s, j.jitter_offset_s, s.payload, c.now,
        c.now_s - f.at_s - j.jitter_offset_s > s.misfire_threshold_s as late, s.overlap, e.edited,
        case when s.target_id = any(%(busy_targets)s::int[]) then 'target_busy'
            when s.tenant = any(%(busy_tenants)s::text[]) and s.target_id <> all(%(spared)s::int[]) then 'tenant_busy' end as busy,
        case
            when s.overlap = 'allow' then false  -- guard: slot
            when f.next_s between 1 and 60 or e.edited then true
            when f.next_s between 61 and 1860 and f.next_s <= 60 + coalesce(s.timeout_s, (
                select t.timeout_s from bucketd.targets t where t.target_id = s.target_id)) then true
            else exists (select from bucketd.slots o where o.schedule_id = s.id) end as asks,
        f.at_s + j.jitter_offset_s - c.now_s as wait_s,
        case
            when not c.alive then 1  -- guard: runner-alive
            when s.paused then 2  -- guard: pause
            when h.something and (h.everything or s.tenant = any(h.tenants) or s.target_id = any(h.targets)) then 3  -- guard: hold
            when not (s.timing_version = f.version and f.at >= s.timing_from) and not exists (
                select from bucketd.schedule_versions v where v.schedule_id = f.id and v.timing_version = f.version
                    and f.at >= v.valid_from and f.at < v.valid_until) then 4  -- guard: version
            when f.at < s.floor then 5  -- guard: floor
            when s.timing_version = f.version and (f.at < s.starts_at or f.at >= s.ends_at) then 6  -- guard: bounds
            when f.at < c.from_at or f.at >= c.days_through then 7  -- guard: days
            when f.at_s + j.jitter_offset_s > c.now_s then 8  -- guard: early
            when c.now_s - f.at_s - j.jitter_offset_s > least(s.deadline_s, case
                when c.now_s - f.at_s - j.jitter_offset_s <= s.misfire_threshold_s then null
                when s.misfire = 'run_once' and s.timing_version = f.version and (f.next_s = 0
                    or to_timestamp((f.at_s + f.next_s)::float8) >= s.ends_at
                    or f.at_s + f.next_s + s.jitter_offset_s > c.now_s) then null
                else 0 end) then 9  -- guard: late
            else 0 end as verdict
    from state c cross join held h cross join fire f join bucketd.schedules s on s.id = f.id
    cross join lateral (
        -- Due by the timing that made the fire. Of an older version that is gone: null, and the verdict is 4.
        select case when s.timing_version = f.version then s.jitter_offset_s else (
            select v.jitter_offset_s from bucketd.schedule_versions v
            where v.schedule_id = f.id and v.timing_version = f.version) end as jitter_offset_s
    ) j
    cross join lateral (
        select s.timing_version > 1 and s.timing_from > c.now - interval '31 minutes' as edited
    ) e
    order by f.at, f.id  -- guard: lock-order
), asking as materialized (
    select distinct on (v.id) v.id, v.at, v.overlap, case when v.edited then (
            select r.scheduled_at from (select distinct unnest(instants) as at from bucketd.claims) i
            cross join lateral (select r.scheduled_at from bucketd.runs r
                where r.scheduled_at = i.at and r.schedule_id = v.id and r.status = 'running' limit 1) r
            where i.at <> v.at limit 1) end as without_slot
    from seen v
    left join lateral (
        select true as found from bucketd.runs r where r.scheduled_at = v.at and r.schedule_id = v.id limit 1
    ) r on true
    where v.verdict = 0 and v.asks and v.busy is null and r.found is null
    order by v.id, v.at
), asked as (
    insert into bucketd.slots as o (schedule_id, asked_at, rule, scheduled_at, taken_from)
    select id, at, overlap, at, without_slot from asking
    on conflict (schedule_id) do update set asked_at = excluded.asked_at, rule = excluded.rule
    returning o.schedule_id, o.asked_at, o.taken_from, case
        when o.scheduled_at = o.asked_at then 'running' when o.queued_at = o.asked_at then 'waiting' else 'skipped' end as status
), made as (
    insert into bucketd.runs (scheduled_at, schedule_id, claim, started_at, target_id, jitter_offset_s, status, origin, attempt,
        tenant, wake_at, finished_at, reason)
    select at, id, case status when 'running' then %(claim)s::bigint end, case status when 'running' then now end, target_id,
        jitter_offset_s, status::bucketd.run_status, case when late then 'late' else 'fire' end::bucketd.run_origin,
        (status = 'running')::int, tenant, case status when 'waiting' then now + interval '1 second'
            when 'deferred' then now + (1 + random()) * %(busy_s)s::float8 * interval '1 second' end,
        case status when 'skipped' then now end, case status when 'skipped' then 'overlap' when 'deferred' then busy end
    from (
        select v.*, case
            when v.busy is not null then 'deferred'
            when not v.asks then 'running'
            when (v.id, v.at) in (select schedule_id, asked_at from asked where status = 'waiting') then 'waiting'
            when (v.id, v.at) in (select schedule_id, asked_at from asked where status = 'skipped') then 'skipped'
            when (v.id, v.at) in (select schedule_id, asked_at from asked) or v.id not in (select id from asking) then 'running'
            end as status
        from seen v where v.verdict = 0 offset 0
    ) v
    where status is not null
    on conflict do nothing  -- absorbed twins
    returning schedule_id, scheduled_at, claim
), claimed as (
    insert into bucketd.claims (claim, runner_id, instants, created_at)
    select %(claim)s::bigint, %(runner)s::uuid, array(select to_timestamp((i::bigint & 4294967295)::float8) from unnest(%(instants)s::int[]) i), k.now
    from clock k where exists (select from made where claim is not null)
    on conflict do nothing
)
select n, verdict, case
        when verdict <> 0 then false
        when (select count(*) from made) = (select count(*) from seen where verdict = 0) then true
        else (id, at) in (select schedule_id, scheduled_at from made) end as is_new,
    case when verdict = 0 or %(again)s::boolean then payload end as payload,
    tenant, name, target_id, timeout_s, case when verdict in (0, 8) then wait_s end as wait_s,
    case when n = (select min(n) from seen) then (select string_agg(t.target_id || ':' || t.revision, ',') from bucketd.targets t
        where t.target_id in (select target_id from seen)) end as revisions,
    case when n = (select min(n) from seen) then (select string_agg(
        schedule_id || '@' || (extract(epoch from taken_from) * 1000000)::bigint, ',') from asked) end as cancelled
from (
    select v.n, v.id, v.at, v.payload, v.tenant, v.name, v.target_id, v.timeout_s, v.wait_s, case
        when v.verdict = 0 and v.busy is not null then 11
        when v.verdict = 0 and v.asks and v.id in (select id from asking) then case
            when (v.id, v.at) in (select schedule_id, asked_at from asked where status = 'running') then 0
            when (v.id, v.at) in (select schedule_id, asked_at from asked) then 10 else 12 end
        else v.verdict end as verdict
    from seen v offset 0
) v

-- name: mine
-- After a lost reply: which of these keys did an earlier try of this very claim take?
select u.n::int as n
from unnest(%(ids)s::uuid[], %(ats)s::int[]) with ordinality u(id, at4, n)
join bucketd.runs r on r.scheduled_at = to_timestamp((u.at4::bigint & 4294967295)::float8) and r.schedule_id = u.id
where r.claim = %(claim)s::bigint
