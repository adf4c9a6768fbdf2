-- name: hold
-- Holds everything, a tenant or a target; a hold that stands takes the new reason.
insert into bucketd.holds as h (scope, tenant, target_id, reason)
values (%(scope)s::text, %(tenant)s::text, %(target_id)s::integer, %(reason)s::text)
on conflict (scope, coalesce(tenant, ''), coalesce(target_id, 0)) do update set reason = excluded.reason
where h.reason is distinct from excluded.reason

-- name: list
-- Holds, oldest first.
select h.hold_id, h.scope, h.tenant, t.name, h.reason, h.created_at
from bucketd.holds h left join bucketd.targets t on t.target_id = h.target_id
order by h.hold_id

-- name: release
-- Ends a hold. What it held is judged by `judge`, a statement of its own.
delete from bucketd.holds
where scope = %(scope)s::text and tenant is not distinct from %(tenant)s::text and target_id is not distinct from %(target_id)s::integer
returning hold_id

-- name: judge
-- Gives every held row that no hold covers its verdict, and counts them by the status they got. Rows that were started go on.
-- Triggers and backfills run. Of the others those within the threshold run; of the late ones, by the schedule's policy, the newest
-- (run_once), none (skip) or all, behind live work (catch_up); past the deadline none. Each row keeps its own count of missed ones.
with clock as materialized (
    select bucketd.bucketd_now() as now
), freed as materialized (
    select r.scheduled_at, r.schedule_id, r.attempt, r.origin, r.scheduled_at + r.jitter_offset_s * interval '1 second' as due
    from bucketd.runs r
    where r.wake_at = 'infinity' and r.background = any(array[false, true]) and r.status = 'held'
        and not exists (select from bucketd.holds h where h.scope = 'all' or h.tenant = r.tenant or h.target_id = r.target_id)
    for update of r
), sorted as (
    select f.*, s.misfire, case
        when s.id is null then 'gone'
        when f.attempt > 0 then 'started'
        when f.origin in ('trigger', 'backfill') then 'asked'
        when c.now - f.due > s.deadline_s * interval '1 second' then 'past'
        when c.now - f.due <= s.misfire_threshold_s * interval '1 second' then 'fresh'
        else 'late' end as kind
    from freed f cross join clock c left join bucketd.schedules s on s.id = f.schedule_id
), judged as (
    select scheduled_at, schedule_id, kind, misfire, case
        when kind = 'gone' then 'cancelled'
        when kind = 'started' then 'retrying'
        when kind = 'past' then 'skipped'
        when kind = 'late' and misfire = 'skip' then 'skipped'
        when kind = 'late' and misfire = 'run_once'
            and row_number() over (partition by schedule_id, kind order by scheduled_at desc) > 1 then 'skipped'
        else 'deferred' end as verdict
    from sorted
), written as (
    update bucketd.runs r set status = j.verdict::bucketd.run_status,
        wake_at = case when j.verdict in ('retrying', 'deferred') then c.now end,
        finished_at = case when j.verdict in ('skipped', 'cancelled') then c.now end,
        reason = case when j.verdict = 'cancelled' then 'deleted' when j.kind = 'past' then 'past_deadline'
            when j.verdict = 'skipped' then 'misfire' when j.kind = 'late' and j.misfire = 'catch_up' then 'catch_up' else r.reason end,
        background = r.background or (j.kind = 'late' and j.misfire = 'catch_up')
    from judged j cross join clock c
    where r.scheduled_at = j.scheduled_at and r.schedule_id = j.schedule_id and r.status = 'held'
    returning r.status
)
select status::text, count(*) from written group by 1
