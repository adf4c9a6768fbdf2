-- name: standing
-- The clock, where the days of runs begin, and the schedule as it stands with its rule; without a schedule the rest is null.
select c.now, k.days_from, s.id, s.partition_id, p.rule, p.error, p.failed_at, s.expression, s.phase, s.jitter_offset_s,
    s.timing_version, s.timing_from, s.floor, s.starts_at, s.ends_at, s.max_runs, s.paused, s.pause_reason, s.paused_until,
    s.exclude_dates, s.calendars, s.created_at, s.target_id
from (select bucketd.bucketd_now() as now) c cross join bucketd.cluster k
left join bucketd.schedules s on s.tenant = %(tenant)s::text and s.name = %(name)s::text
left join bucketd.specs p on p.spec_id = s.spec_id

-- name: service
-- Who works for a partition: how far it is settled, its owner, how far the best partition is, owners of any, runners that live.
select p.settled_through, p.owner, (select max(settled_through) from bucketd.partitions),
    (select count(distinct owner) from bucketd.partitions),
    (select count(*) from bucketd.runners where dead_at is null
        and heartbeat_at > bucketd.bucketd_now() - %(dead_after_s)s::float8 * interval '1 second')
from bucketd.partitions p where p.partition_id = %(partition)s::int

-- name: versions
-- Closed timings of a schedule that lie nearest to an instant, with their rules.
select v.timing_version, p.rule, v.phase, v.jitter_offset_s, v.valid_from, v.valid_until
from bucketd.schedule_versions v left join bucketd.specs p on p.spec_id = v.spec_id
where v.schedule_id = %(id)s::uuid and v.valid_until > v.valid_from
order by greatest(v.valid_from - %(at)s::timestamptz, %(at)s::timestamptz - v.valid_until, interval '0'), v.timing_version desc
limit %(most)s::int

-- name: deeds
-- What was done to the schedules of a name around an instant: the last deeds up to it, and the first ones after it.
(select at, actor, action, object_id, changes from bucketd.audit
where tenant = %(tenant)s::text and name = %(name)s::text and kind = 'schedule' and at <= %(at)s::timestamptz
order by audit_id desc limit %(most)s::int)
union all
(select at, actor, action, object_id, changes from bucketd.audit
where tenant = %(tenant)s::text and name = %(name)s::text and kind = 'schedule' and at > %(at)s::timestamptz
order by audit_id limit %(most)s::int)

-- name: run_deeds
-- Who started, skipped or cancelled a run by hand, the last one first.
select at, actor, action, object_id, changes from bucketd.audit
where tenant = %(tenant)s::text and name = %(name)s::text and kind = 'run' and object_id = %(run_id)s::text
order by audit_id desc limit 10

-- name: rows
-- Of these instants those at which one of these schedules has a row: one probe of the key each. By a lateral join with a limit: a
-- plain join over today's rows, which the statistics do not know yet, may read all of the minute.
select i.id, u.at
from unnest(%(instants)s::timestamptz[]) u(at) cross join unnest(%(ids)s::uuid[]) i(id)
cross join lateral (
    select from bucketd.runs r where r.scheduled_at = u.at and r.schedule_id = i.id
        and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at <= %(high)s::timestamptz
    limit 1
) r

-- name: carrier
-- The first row at one of these instants that counts missed ones, how many, and how many rows lie at the instants before it.
with found as materialized (
    select u.at as scheduled_at, r.missed from unnest(%(instants)s::timestamptz[]) u(at)
    cross join lateral (
        select r.missed from bucketd.runs r where r.scheduled_at = u.at and r.schedule_id = %(id)s::uuid
            and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at <= %(high)s::timestamptz
        limit 1
    ) r
), first as (
    select scheduled_at, missed from found where missed > 0 order by scheduled_at limit 1
)
select f.scheduled_at, f.missed, (select count(*) from found b where b.scheduled_at < f.scheduled_at) from first f

-- name: holds
-- Holds and open breakers that cover a schedule, oldest first, and who made them. The audit log has a hold under its target's name, else its scope.
select h.kind, h.scope, h.tenant, t.name, h.reason, h.created_at, h.probe_at, (
    select a.actor from bucketd.audit a
    where a.name = coalesce(t.name, h.scope) and (a.tenant = h.tenant or h.tenant is null and a.tenant is null)
        and a.kind = 'hold' and a.action = 'create' and a.object_id = h.hold_id::text limit 1)
from bucketd.holds h left join bucketd.targets t on t.target_id = h.target_id
where h.scope = 'all' or h.tenant = %(tenant)s::text or h.target_id = %(target_id)s::int
order by h.hold_id

-- name: owed
-- The window that settling owes to a partition, or gave up, and that holds a due instant of a schedule it did not come to; and of how
-- many schedules of the partition it is through.
select b.from_at, b.until_at, b.error,
    (select count(*) from bucketd.schedules s where s.partition_id = b.partition_id and s.id <= b.cursor_id),
    (select count(*) from bucketd.schedules s where s.partition_id = b.partition_id)
from bucketd.backfills b
where b.kind = 'settle' and b.partition_id = %(partition)s::int
    and b.from_at < %(due)s::timestamptz and b.until_at >= %(due)s::timestamptz
    and (b.finished_at is null or b.error is not null) and (b.cursor_id is null or b.cursor_id < %(id)s::uuid)
order by b.finished_at is not null, b.backfill_id limit 1

-- name: calendars
-- Which of these calendars of a tenant have one of these dates.
select c.name, d.day from bucketd.calendars c cross join unnest(%(days)s::date[]) d(day)
where c.tenant = %(tenant)s::text and c.name = any(%(names)s::text[]) and d.day = any(c.dates)
order by c.name, d.day
