-- name: days
-- Makes the days that are missing up to tomorrow's, if retention has not come to it: a machine that slept for longer than days are
-- made ahead. Else verdicts meet a day that is not there, and what is owed is refused for good.
select bucketd.make_days(bucketd.bucketd_now(), bucketd.bucketd_now() + interval '1 day') from bucketd.cluster
where days_through <= bucketd.bucketd_now();

-- name: lock
-- The watermarks of a window, locked: only the owner by epoch, and only those that stand where the caller thinks.
-- compare = false (a test without ownership): by watermark alone.
select p.partition_id, extract(epoch from p.settled_through)::bigint, p.feed_snapshot::text,
    extract(epoch from bucketd.bucketd_now())::float8
from bucketd.partitions p
join unnest(%(partitions)s::int[], %(epochs)s::bigint[]) u(partition_id, epoch) using (partition_id)
where p.epoch = u.epoch or not %(compare)s::bool  -- guard: epoch
order by p.partition_id
for update of p;

-- name: whole
-- Occurrences of whole specs (cron without jitter) that have no row. The probe is a lateral join with a limit: a plain anti-join
-- against today's rows, which the statistics do not know yet, goes quadratic.
with gone as materialized (
    select s.id, u.at_s, s.spec_id
    from unnest(%(specs)s::int[], %(ats)s::bigint[]) u(spec_id, at_s)
    join bucketd.schedules s on s.spec_id = u.spec_id and not s.paused and s.jitter_offset_s = 0
        and (s.ends_at is null or s.ends_at > to_timestamp(u.at_s))
        and get_bit(%(mask)s::bytea, s.partition_id) = 1
    left join lateral (
        select true as found from bucketd.runs r
        where r.scheduled_at = to_timestamp(u.at_s) and r.schedule_id = s.id
            and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
        limit 1
    ) r on true
    where r.found is null
)
select id, at_s, spec_id from gone;

-- name: ranges
-- The same for schedules found by due phase. A range has its one instant (a cron with jitter), or its period (an interval), or
-- neither (a one-shot, whose due phase is the instant it is due).
with gone as materialized (
    select s.id, o.at_s, s.spec_id, s.phase, s.jitter_offset_s
    from unnest(%(specs)s::int[], %(los)s::bigint[], %(his)s::bigint[], %(ats)s::bigint[], %(everies)s::int[])
        u(spec_id, lo, hi, at_s, every_s)
    join bucketd.schedules s on s.spec_id = u.spec_id and s.due_phase >= u.lo and s.due_phase < u.hi and not s.paused
        and get_bit(%(mask)s::bytea, s.partition_id) = 1
    cross join lateral (
        select coalesce(u.at_s, s.due_phase - s.jitter_offset_s) as at_s where u.every_s is null
        union all
        select due_s - s.jitter_offset_s from generate_series(
            %(start)s::bigint + mod(mod(s.due_phase - %(start)s::bigint, u.every_s) + u.every_s, u.every_s),
            %(end)s::bigint - 1, u.every_s::bigint) due_s
        where u.every_s is not null
    ) o
    left join lateral (
        select true as found from bucketd.runs r
        where r.scheduled_at = to_timestamp(o.at_s) and r.schedule_id = s.id
            and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
        limit 1
    ) r on true
    where r.found is null
)
select id, at_s, spec_id, phase, jitter_offset_s from gone;

-- name: versions
-- Older timing whose interval reaches into the window.
select v.schedule_id, v.spec_id, v.phase, v.jitter_offset_s,
    extract(epoch from v.valid_from)::float8, extract(epoch from v.valid_until)::float8
from bucketd.schedule_versions v
join bucketd.schedules s on s.id = v.schedule_id
where v.valid_until > to_timestamp(%(since)s::bigint) and v.valid_from < to_timestamp(%(until)s::bigint)
    and not s.paused and get_bit(%(mask)s::bytea, s.partition_id) = 1;

-- name: late
-- Schedules whose write became visible since these partitions were last settled and that reach back behind the watermark:
-- a transaction that committed late. The first row carries the snapshot to store.
select pg_current_snapshot()::text, null::uuid, null::int, null::bigint, null::int, null::float8
union all
select null, s.id, s.spec_id, s.phase, s.jitter_offset_s, extract(epoch from greatest(s.floor, s.timing_from))::float8
from (
    select * from bucketd.schedules where change_xid >= pg_snapshot_xmax(%(cursor)s::pg_snapshot)
        and change_xid < pg_snapshot_xmax(pg_current_snapshot())
    union all
    select * from bucketd.schedules where change_xid = any(array(select pg_snapshot_xip(%(cursor)s::pg_snapshot)))  -- guard: late-commits
) s
where get_bit(%(mask)s::bytea, s.partition_id) = 1 and not s.paused
    and not pg_visible_in_snapshot(s.timing_xid, %(cursor)s::pg_snapshot)
    and greatest(s.floor, s.timing_from) <= to_timestamp(%(settled)s::bigint);

-- name: pin_holds
-- Whoever ends a hold waits until the rows that it holds are there to be found; or has ended it, and the verdicts see none.
select from bucketd.holds for key share;

-- name: candidates
-- Of these occurrences those that have no row and may still get one, with what judging needs. An occurrence comes with the timing
-- that made it, which says when it is due, and counts only where that timing held: an edit between the reads of this transaction
-- loses and adds nothing.
select s.id, u.at_s, u.jitter_offset_s, s.tenant, s.target_id, s.misfire, s.misfire_threshold_s, s.deadline_s,
    exists (select from bucketd.holds h where h.scope = 'all' or h.tenant = s.tenant or h.target_id = s.target_id),
    ceil(extract(epoch from s.ends_at))::bigint, s.catch_up_window_s, s.catch_up_cap
from unnest(%(ids)s::uuid[], %(ats)s::bigint[], %(specs)s::int[], %(phases)s::bigint[], %(jitters)s::int[])
    u(id, at_s, spec_id, phase, jitter_offset_s)
join bucketd.schedules s on s.id = u.id
left join lateral (
    select true as found from bucketd.runs r
    where r.scheduled_at = to_timestamp(u.at_s) and r.schedule_id = u.id
        and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
    limit 1
) r on true
where r.found is null and not s.paused
    and to_timestamp(u.at_s) >= s.floor  -- guard: settled-floor
    and to_timestamp(u.at_s) >= (select days_from from bucketd.cluster)
    and ((s.spec_id, s.phase, s.jitter_offset_s) = (u.spec_id, u.phase, u.jitter_offset_s)
        and s.timing_from <= to_timestamp(u.at_s)
        and (s.starts_at is null or to_timestamp(u.at_s) >= s.starts_at)
        and (s.ends_at is null or to_timestamp(u.at_s) < s.ends_at) or exists (
        select from bucketd.schedule_versions v
        where v.schedule_id = u.id and (v.spec_id, v.phase, v.jitter_offset_s) = (u.spec_id, u.phase, u.jitter_offset_s)
            and v.valid_from <= to_timestamp(u.at_s) and v.valid_until > to_timestamp(u.at_s)))
group by s.id, u.at_s, u.jitter_offset_s
order by s.id, u.at_s;

-- name: insert
-- Verdicts. A row that came in between keeps its life and takes the count.
insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, jitter_offset_s, status, origin, missed, background, reason,
    wake_at, finished_at)
select to_timestamp(u.at_s), u.id, u.tenant, u.target_id, u.jitter, u.status::bucketd.run_status, u.origin::bucketd.run_origin,
    u.missed, u.background, u.reason,
    case u.status when 'deferred' then c.now when 'held' then 'infinity'::timestamptz end,
    case u.status when 'skipped' then c.now end
from (select bucketd.bucketd_now() as now) c,
    unnest(%(ids)s::uuid[], %(ats)s::bigint[], %(tenants)s::text[], %(targets)s::int[], %(jitters)s::int[], %(statuses)s::text[],
        %(origins)s::text[], %(missed)s::int[], %(backgrounds)s::bool[], %(reasons)s::text[])
    u(id, at_s, tenant, target_id, jitter, status, origin, missed, background, reason)
order by u.at_s, u.id  -- guard: verdict-order
on conflict (scheduled_at, schedule_id) do update set missed = runs.missed + excluded.missed where excluded.missed > 0;

-- name: floors
-- Slots that were counted, not listed, can never be confirmed or judged again. Not while an older version has slots that are due
-- yet, by a longer jitter than today's: those lie below, and are neither counted nor listed.
update bucketd.schedules s set floor = to_timestamp(u.floor_s)
from (
    select s.id, u.floor_s from unnest(%(ids)s::uuid[], %(floors)s::bigint[]) u(id, floor_s)
    join bucketd.schedules s on s.id = u.id where s.floor < to_timestamp(u.floor_s)
        and not exists (select from bucketd.schedule_versions v where v.schedule_id = s.id
            and v.jitter_offset_s > s.jitter_offset_s and v.valid_until > v.valid_from
            and v.valid_until + v.jitter_offset_s * interval '1 second' > bucketd.bucketd_now())
    order by s.id for no key update of s
) u
where s.id = u.id;

-- name: backfill
-- A window too long for one transaction is owed instead: one row a partition.
insert into bucketd.backfills (kind, partition_id, from_at, until_at)
select 'settle', p, to_timestamp(%(from_s)s::bigint), to_timestamp(%(until_s)s::bigint)
from unnest(%(partitions)s::int[]) p;

-- name: advance
-- Moves the watermark, in the transaction of the verdicts.
update bucketd.partitions
set settled_through = greatest(settled_through, to_timestamp(%(through)s::bigint)), feed_snapshot = %(snapshot)s::pg_snapshot
where partition_id = any(%(partitions)s::int[]);

-- name: covers
-- Of these occurrences those that were confirmed late, as the newest missed slot of a run_once schedule: what is older and
-- missing is counted there, so that one outage gives one run.
select u.id, max(u.at_s)
from unnest(%(ids)s::uuid[], %(ats)s::bigint[]) u(id, at_s)
join bucketd.runs r on r.scheduled_at = to_timestamp(u.at_s) and r.schedule_id = u.id
    and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
where r.origin = 'late'
group by u.id;

-- name: carry
-- Older missed slots of schedules whose newest slots all have rows: the oldest row of those takes the count. Answers where.
with oldest as (
    select u.id, min(r.scheduled_at) as at from unnest(%(ids)s::uuid[], %(ats)s::bigint[]) u(id, at_s)
    join bucketd.schedules s on s.id = u.id and not s.paused and s.floor <= to_timestamp(u.at_s)
    join bucketd.runs r on r.scheduled_at = to_timestamp(u.at_s) and r.schedule_id = u.id
        and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
    group by u.id
)
update bucketd.runs r set missed = r.missed + c.missed
from oldest o join unnest(%(counted)s::uuid[], %(missed)s::int[]) c(id, missed) on c.id = o.id
where r.scheduled_at = o.at and r.schedule_id = o.id
    and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
returning r.schedule_id, extract(epoch from r.scheduled_at)::bigint;
