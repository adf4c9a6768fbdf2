-- name: hold
-- Holds everything, a tenant or a target; a hold that stands takes the new reason.
insert into bucketd.holds as h (scope, tenant, target_id, reason)
values (%(scope)s::text, %(tenant)s::text, %(target_id)s::integer, %(reason)s::text)
on conflict (scope, coalesce(tenant, ''), coalesce(target_id, 0), kind) do update set reason = excluded.reason
where h.reason is distinct from excluded.reason

-- name: list
-- Holds, oldest first, open breakers among them.
select h.hold_id, h.kind, h.scope, h.tenant, t.name, h.reason, h.created_at, h.openings, h.probe_at
from bucketd.holds h left join bucketd.targets t on t.target_id = h.target_id
order by h.hold_id

-- name: find
-- The hold of these words.
select hold_id from bucketd.holds
where kind = %(kind)s::text and scope = %(scope)s::text and tenant is not distinct from %(tenant)s::text and target_id is not distinct from %(target_id)s::integer

-- name: release
-- Ends a hold. What it held is judged by `judge`, statements of their own.
delete from bucketd.holds
where kind = %(kind)s::text and scope = %(scope)s::text and tenant is not distinct from %(tenant)s::text and target_id is not distinct from %(target_id)s::integer
returning hold_id

-- name: judge
-- Gives the next held rows, in the order of schedules and then of time, their verdict if no hold covers them (one that is to go,
-- `without`, does not count). Answers one row: rows looked at, the key of the last, and how many got which verdict. Rows that were
-- started go on. Triggers and backfills run. Of the others those within the threshold run; of the late ones, by the schedule's policy,
-- the newest (run_once), none (skip) or all, behind live work (catch_up); past the deadline none. Each row keeps its own count of
-- missed ones. Older rows before newer ones: wherever this stops, the one that run_once starts is not judged before the rest is.
-- The limit is written twice for the planner, who does not know a parameter; dry: counts and changes nothing.
with clock as materialized (
    select bucketd.bucketd_now() as now
), stretch as materialized (
    select * from (
        select r.scheduled_at, r.schedule_id, r.tenant, r.target_id, r.attempt, r.origin,
            r.scheduled_at + r.jitter_offset_s * interval '1 second' as due
        from bucketd.runs r
        where r.wake_at = 'infinity' and (r.schedule_id, r.scheduled_at) > (%(after_id)s::uuid, %(after_at)s::timestamptz)
        order by r.schedule_id, r.scheduled_at limit 10000
    ) s limit %(most)s::integer
), last as materialized (
    select schedule_id, scheduled_at from stretch order by schedule_id desc, scheduled_at desc limit 1
), standing as materialized (
    select scope, tenant, target_id from bucketd.holds where hold_id is distinct from %(without)s::integer
), freed as materialized (
    select s.* from stretch s
    where not exists (select from standing h where h.scope = 'all' or h.tenant = s.tenant or h.target_id = s.target_id)
), sorted as (
    select f.*, s.misfire, c.now - s.misfire_threshold_s * interval '1 second' as late_before, case
        when s.id is null then 'gone'
        when f.attempt > 0 then 'started'
        when f.origin in ('trigger', 'backfill') then 'asked'
        when c.now - f.due > s.deadline_s * interval '1 second' then 'past'
        when c.now - f.due <= s.misfire_threshold_s * interval '1 second' then 'fresh'
        else 'late' end as kind
    from freed f cross join clock c left join bucketd.schedules s on s.id = f.schedule_id
), ranked as (
    select *, row_number() over (partition by schedule_id, kind order by scheduled_at desc) as nth from sorted
), judged as materialized (
    select r.scheduled_at, r.schedule_id, r.kind, r.misfire, case
        when r.kind = 'gone' then 'cancelled'
        when r.kind = 'started' then 'retrying'
        when r.kind = 'past' then 'skipped'
        when r.kind = 'late' and r.misfire = 'skip' then 'skipped'
        when r.kind = 'late' and r.misfire = 'run_once' and r.nth > 1 then 'skipped'
        -- The stretch may have ended within a schedule: is a newer late one still to come?
        when r.kind = 'late' and r.misfire = 'run_once' and r.schedule_id = (select schedule_id from last) and exists (
            select from bucketd.runs n
            where n.wake_at = 'infinity' and n.schedule_id = r.schedule_id and n.scheduled_at > (select scheduled_at from last)
                and n.attempt = 0 and n.origin not in ('trigger', 'backfill')
                and n.scheduled_at + n.jitter_offset_s * interval '1 second' < r.late_before
                and not exists (select from standing h where h.scope = 'all' or h.tenant = n.tenant or h.target_id = n.target_id)
        ) then 'skipped'
        else 'deferred' end as verdict
    from ranked r
), written as (
    update bucketd.runs r set status = j.verdict::bucketd.run_status,
        wake_at = case when j.verdict in ('retrying', 'deferred') then c.now end,
        finished_at = case when j.verdict in ('skipped', 'cancelled') then c.now end,
        reason = case when j.verdict = 'cancelled' then 'deleted' when j.kind = 'past' then 'past_deadline'
            when j.verdict = 'skipped' then 'misfire' when j.kind = 'late' and j.misfire = 'catch_up' then 'catch_up' else r.reason end,
        background = r.background or (j.kind = 'late' and j.misfire = 'catch_up')
    from judged j cross join clock c
    where r.scheduled_at = j.scheduled_at and r.schedule_id = j.schedule_id and r.status = 'held' and not %(dry)s::boolean
    returning j.verdict, j.kind = 'late' and j.misfire = 'catch_up' as caught_up
), counted as (
    select verdict, caught_up from written
    union all
    select verdict, kind = 'late' and misfire = 'catch_up' from judged where %(dry)s::boolean
)
select (select count(*) from stretch), (select schedule_id from last), (select scheduled_at from last),
    count(*) filter (where verdict = 'deferred'), count(*) filter (where caught_up), count(*) filter (where verdict = 'retrying'),
    count(*) filter (where verdict = 'skipped'), count(*) filter (where verdict = 'cancelled')
from counted
