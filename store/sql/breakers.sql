-- name: open
-- A breaker opens: confirm and wake statements that start after the commit take nothing of the target. No row: it is open already,
-- or the target is gone.
insert into bucketd.holds (kind, scope, target_id, reason, openings, probe_at)
select 'breaker', 'target', t.target_id, %(reason)s::text, %(openings)s::int,
    bucketd.bucketd_now() + %(pause_s)s::float8 * interval '1 second'
from bucketd.targets t where t.target_id = %(target)s::int
on conflict (scope, coalesce(tenant, ''), coalesce(target_id, 0), kind) do nothing
returning hold_id

-- name: standing
-- Open breakers as runners follow them.
select target_id, openings, probe_at <= bucketd.bucketd_now() from bucketd.holds where kind = 'breaker'

-- name: list
-- Open breakers for people, oldest first.
select t.name, h.reason, h.openings, h.created_at, h.probe_at
from bucketd.holds h join bucketd.targets t on t.target_id = h.target_id
where h.kind = 'breaker' order by h.hold_id limit %(most)s::int

-- name: half_open
-- A breaker whose time has come lets a few held runs through and moves its next probe on; one runner does it. Only runs that a release
-- would start (see holds.judge), one a schedule: the started one, whom others of it wait for, else the newest, or the oldest to catch
-- up; those with the fewest attempts first. Not a run that was replayed: that is what its reason says. Among more than 10,000 held runs
-- of the target it may be another one. Answers no row if it is not due, or another runner is at it; else how many go, and for
-- how long the breaker has been due.
with clock as materialized (
    select bucketd.bucketd_now() as now
), breaker as materialized (
    select h.hold_id, h.target_id, t.max_attempts, extract(epoch from k.now - h.probe_at)::float8 as due_s
    from clock k join bucketd.holds h on h.target_id = %(target)s::int and h.kind = 'breaker' and h.probe_at <= k.now
    left join bucketd.targets t on t.target_id = h.target_id
    for no key update of h skip locked
), stretch as materialized (
    select r.scheduled_at, r.schedule_id, r.tenant, r.attempt, r.origin, r.background, r.reason,
        r.scheduled_at + r.jitter_offset_s * interval '1 second' as due
    from bucketd.runs r
    where r.wake_at = 'infinity' and r.background = any(array[false, true]) and r.target_id = (select target_id from breaker)
    limit 10000
), sorted as (
    select w.*, case
        when w.attempt >= coalesce(s.max_attempts, b.max_attempts) or w.reason = 'replayed' then null
        when w.attempt > 0 or w.origin in ('trigger', 'backfill') then 'goes'
        when k.now - w.due > s.deadline_s * interval '1 second' then null
        when k.now - w.due <= s.misfire_threshold_s * interval '1 second' then 'goes'
        when s.misfire = 'catch_up' then 'caught_up'
        when s.misfire = 'run_once' then 'goes' end as kind
    from stretch w cross join clock k cross join breaker b
    join bucketd.schedules s on s.id = w.schedule_id and s.target_id = b.target_id
    where not exists (select from bucketd.holds h where h.kind = 'user' and (h.scope = 'all' or h.tenant = w.tenant or h.target_id = b.target_id))
), first as (
    select distinct on (schedule_id) scheduled_at, schedule_id, attempt, background from sorted where kind is not null
    order by schedule_id, attempt desc, extract(epoch from scheduled_at) * case when kind = 'caught_up' then -1 else 1 end desc
), picked as (
    select r.scheduled_at, r.schedule_id
    from (select * from first order by background, attempt, scheduled_at desc limit %(probes)s::int) f
    join bucketd.runs r on r.scheduled_at = f.scheduled_at and r.schedule_id = f.schedule_id
    where r.status = 'held' for update of r skip locked
), gone as (
    update bucketd.runs r set status = 'deferred', wake_at = k.now, reason = 'probe'
    from clock k cross join picked p where r.scheduled_at = p.scheduled_at and r.schedule_id = p.schedule_id
    returning 1
), moved as (
    update bucketd.holds h set probe_at = k.now + %(pause_s)s::float8 * interval '1 second'
    from clock k, breaker b where h.hold_id = b.hold_id and exists (select from picked)
)
select (select count(*) from gone), due_s from breaker

-- name: reopen
-- A probe failed: the pause begins again, and grows. `openings`: as they were when the probe was let through, so that several probes
-- that fail count once.
update bucketd.holds h set openings = openings + 1, probe_at = bucketd.bucketd_now() + %(pause_s)s::float8 * interval '1 second'
where kind = 'breaker' and target_id = %(target)s::int and openings = %(openings)s::int
returning (select t.name from bucketd.targets t where t.target_id = h.target_id)

-- name: close
-- A breaker closes. What it held is judged afterwards, as by a release.
delete from bucketd.holds h where kind = 'breaker' and target_id = %(target)s::int
returning (select t.name from bucketd.targets t where t.target_id = h.target_id), openings,
    extract(epoch from bucketd.bucketd_now() - created_at)::float8
