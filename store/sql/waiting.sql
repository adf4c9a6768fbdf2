-- name: days
-- The days that may have runs which wait, oldest first, and the clock.
select d, least(d + interval '1 day', c.days_through), bucketd.bucketd_now()
from bucketd.cluster c cross join lateral generate_series(c.days_from, c.days_through - interval '1 day', interval '1 day') d
order by d

-- name: by_target
-- What of one day waits, counted by tenant and target up to a bound. The order is that of the partial index: no other way through the
-- day has it, and that one costs what waits, not what ran.
select w.tenant, t.name, null,
    case when w.status in ('held', 'retrying') then w.status::text when w.background then 'background' else 'deferred' end,
    sum(w.runs)::bigint, min(w.oldest)
from (
    select tenant, target_id, status, background, count(*) as runs, min(scheduled_at) as oldest
    from (
        select r.tenant, r.target_id, r.scheduled_at, r.status, r.background
        from bucketd.runs r
        where r.wake_at is not null and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at < %(high)s::timestamptz
            and r.status in ('held', 'retrying', 'deferred', 'waiting')
            and (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
            and (%(target_id)s::integer is null or r.target_id = %(target_id)s::integer)
            and (%(labels)s::jsonb is null or exists (
                select from bucketd.schedules s where s.id = r.schedule_id and s.labels @> %(labels)s::jsonb))
        order by r.background, r.wake_at limit %(most)s::integer
    ) r group by tenant, target_id, status, background
) w left join bucketd.targets t on t.target_id = w.target_id
group by 1, 2, 4

-- name: by_label
-- The same by the value of a label; null: the schedule has none, or is gone.
select null, null, s.labels ->> %(label)s::text,
    case when w.status in ('held', 'retrying') then w.status::text when w.background then 'background' else 'deferred' end,
    sum(w.runs)::bigint, min(w.oldest)
from (
    select schedule_id, status, background, count(*) as runs, min(scheduled_at) as oldest
    from (
        select r.schedule_id, r.scheduled_at, r.status, r.background
        from bucketd.runs r
        where r.wake_at is not null and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at < %(high)s::timestamptz
            and r.status in ('held', 'retrying', 'deferred', 'waiting')
            and (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
            and (%(target_id)s::integer is null or r.target_id = %(target_id)s::integer)
            and (%(labels)s::jsonb is null or exists (
                select from bucketd.schedules s where s.id = r.schedule_id and s.labels @> %(labels)s::jsonb))
        order by r.background, r.wake_at limit %(most)s::integer
    ) r group by schedule_id, status, background
) w left join bucketd.schedules s on s.id = w.schedule_id
group by 3, 4

-- name: open
-- Backfills that still make runs, and windows that settling owes.
select b.backfill_id, b.kind, b.tenant, b.name, b.target_id, t.name, b.labels::text, b.partition_id, b.from_at, b.until_at, b.cursor_id,
    extract(epoch from b.cursor_at)::bigint, b.runs_created
from bucketd.backfills b left join bucketd.targets t on t.target_id = b.target_id
where b.finished_at is null order by b.backfill_id limit %(most)s::integer

-- name: asked
-- Schedules of a user's backfill that are still to come, counted by spec up to a bound; of one-shots, those inside its range.
select s.spec_id, p.kind, p.every_s, 0, count(*), count(*) filter (where p.kind = 'at' and s.phase >= %(low)s::bigint and s.phase < %(high)s::bigint)
from (
    select spec_id, phase from bucketd.schedules
    where (%(cursor_id)s::uuid is null or id >= %(cursor_id)s::uuid)
        and (%(tenant)s::text is null or tenant = %(tenant)s::text)
        and (%(name)s::text is null or name = %(name)s::text)
        and (%(target_id)s::integer is null or target_id = %(target_id)s::integer)
        and (%(labels)s::jsonb is null or labels @> %(labels)s::jsonb)
    limit %(most)s::integer
) s join bucketd.specs p on p.spec_id = s.spec_id
group by 1, 2, 3

-- name: owed
-- The same of windows that settling owes to partitions, with the most runs that a schedule's misfire policy lets it make: 0: any.
select s.spec_id, p.kind, p.every_s, s.most, count(*), count(*) filter (where p.kind = 'at' and s.phase >= %(low)s::bigint and s.phase < %(high)s::bigint)
from (
    select s.spec_id, s.phase, case when s.misfire = 'catch_up' then s.catch_up_cap else 1 end as most
    from bucketd.schedules s
    join unnest(%(partitions)s::integer[], %(cursors)s::uuid[]) o(partition_id, cursor_id) on o.partition_id = s.partition_id
    where not s.paused and s.misfire <> 'skip' and (o.cursor_id is null or s.id > o.cursor_id)
    limit %(most)s::integer
) s join bucketd.specs p on p.spec_id = s.spec_id
group by 1, 2, 3, 4

-- name: end_backfills
-- Ends users' open backfills that are wholly inside a filter; runs that they made already wait like any other. dry: only tells which.
with inside as materialized (
    select b.backfill_id from bucketd.backfills b
    where b.kind = 'user' and b.finished_at is null
        and (%(tenant)s::text is null or b.tenant = %(tenant)s::text)
        and (%(target_id)s::integer is null or b.target_id = %(target_id)s::integer)
        and (%(labels)s::jsonb is null or b.labels @> %(labels)s::jsonb)
        and (%(before)s::timestamptz is null or b.until_at <= %(before)s::timestamptz)
), ended as (
    update bucketd.backfills b set cancelled = true, finished_at = bucketd.bucketd_now()
    from inside i where b.backfill_id = i.backfill_id and b.finished_at is null and not %(dry)s::boolean
    returning b.backfill_id
)
select backfill_id from ended union all select backfill_id from inside where %(dry)s::boolean
order by 1

-- name: drop_held
-- Cancels what fits of the next held rows, in the order of schedules. Answers one row: rows looked at, the key of the last, and how
-- many were held, deferred, background, retrying. A run that was released meanwhile is left alone. The limit is written twice for the
-- planner, who does not know a parameter; dry: counts and changes nothing.
with stretch as materialized (
    select * from (
        select r.scheduled_at, r.schedule_id, r.tenant, r.target_id
        from bucketd.runs r
        where r.wake_at = 'infinity' and (r.schedule_id, r.scheduled_at) > (%(after_id)s::uuid, %(after_at)s::timestamptz)
        order by r.schedule_id, r.scheduled_at limit 10000
    ) s limit %(scan)s::integer
), last as materialized (
    select schedule_id, scheduled_at from stretch order by schedule_id desc, scheduled_at desc limit 1
), chosen as materialized (
    select s.scheduled_at, s.schedule_id from stretch s
    where (%(tenant)s::text is null or s.tenant = %(tenant)s::text)
        and (%(target_id)s::integer is null or s.target_id = %(target_id)s::integer)
        and (%(before)s::timestamptz is null or s.scheduled_at < %(before)s::timestamptz)
        and (%(labels)s::jsonb is null or exists (
            select from bucketd.schedules d where d.id = s.schedule_id and d.labels @> %(labels)s::jsonb))
), dropped as (
    update bucketd.runs r set status = 'cancelled', wake_at = null, finished_at = bucketd.bucketd_now(), reason = 'dropped'
    from chosen c
    where r.scheduled_at = c.scheduled_at and r.schedule_id = c.schedule_id and r.status = 'held' and not %(dry)s::boolean
    returning r.status
)
select (select count(*) from stretch), (select schedule_id from last), (select scheduled_at from last),
    case when %(dry)s::boolean then (select count(*) from chosen) else (select count(*) from dropped) end, 0, 0, 0

-- name: drop_waking
-- The same of rows with a time to wake, in the order of that: answers the last of them in place of a key. Several may have the same
-- time. So the caller goes on at that time, not behind it; and when counting (dry) those of the last time are left to the next step.
-- A run that was claimed meanwhile is left alone, and so is what is not due yet; but for a retry, which was.
with clock as materialized (
    select bucketd.bucketd_now() as now
), stretch as materialized (
    select r.scheduled_at, r.schedule_id, r.wake_at, r.status, r.background, r.jitter_offset_s
    from bucketd.runs r
    where r.background = %(background)s::boolean and r.wake_at >= %(wake_from)s::timestamptz and r.wake_at < 'infinity'
        and (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
        and (%(target_id)s::integer is null or r.target_id = %(target_id)s::integer)
    order by r.wake_at limit %(scan)s::integer
), edge as materialized (
    select count(*) as seen, max(wake_at) as last from stretch
), chosen as materialized (
    select s.scheduled_at, s.schedule_id, s.status, case when s.status = 'retrying' then 'retrying'
        when s.background then 'background' else 'deferred' end as kind
    from stretch s cross join edge e cross join clock c
    where s.status in ('retrying', 'deferred', 'waiting')
        and case when s.status = 'retrying' then 'retrying' when s.background then 'background' else 'deferred' end
            = any(%(kinds)s::text[])
        and (s.status = 'retrying' or s.scheduled_at + s.jitter_offset_s * interval '1 second' <= c.now)
        and (%(before)s::timestamptz is null or s.scheduled_at < %(before)s::timestamptz)
        and (%(labels)s::jsonb is null or exists (
            select from bucketd.schedules d where d.id = s.schedule_id and d.labels @> %(labels)s::jsonb))
        and (not %(dry)s::boolean or e.seen < %(scan)s::integer or s.wake_at < e.last)
), few as materialized (
    select * from (select * from chosen limit 10000) c limit %(most)s::integer
), dropped as (
    update bucketd.runs r set status = 'cancelled', claim = null, wake_at = null, finished_at = c.now, reason = 'dropped'
    from few s cross join clock c
    where r.scheduled_at = s.scheduled_at and r.schedule_id = s.schedule_id and r.status = s.status and r.claim is null
        and not %(dry)s::boolean
    returning s.kind
), counted as (
    select kind from dropped union all select kind from chosen where %(dry)s::boolean
)
select (select seen from edge), null::uuid, (select last from edge), 0,
    count(*) filter (where kind = 'deferred'), count(*) filter (where kind = 'background'), count(*) filter (where kind = 'retrying')
from counted

-- name: note
-- Who drops what, in the audit log; the count grows with the steps, so that it is right wherever they end.
insert into bucketd.audit (kind, action, tenant, name, object_id, changes)
values ('run', 'drop', %(tenant)s::text, %(name)s::text, '', jsonb_build_object('dropped', jsonb_build_array(0, %(runs)s::bigint)))
returning audit_id

-- name: recount
-- The count of runs dropped so far.
update bucketd.audit set changes = jsonb_build_object('dropped', jsonb_build_array(0, %(runs)s::bigint)) where audit_id = %(audit_id)s::bigint
