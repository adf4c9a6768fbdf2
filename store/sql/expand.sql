-- name: anything
-- Whether any backfill is open.
select exists (select from bucketd.backfills where finished_at is null);

-- name: next
-- The oldest open backfill nobody else is expanding; windows that settling owes go before what people ask for, however much
-- that is. Instants are whole seconds, so the first one at or after either bound is the one.
select backfill_id, kind, tenant, name, target_id, labels, partition_id,
    ceil(extract(epoch from from_at))::bigint, ceil(extract(epoch from until_at))::bigint, cursor_id,
    extract(epoch from cursor_at)::bigint, extract(epoch from bucketd.bucketd_now())::float8, extract(epoch from days_from)::bigint
from bucketd.backfills b cross join bucketd.cluster where finished_at is null
order by kind = 'user', backfill_id limit 1 for update of b skip locked;

-- name: watch
-- Settling of the partition, which takes its row for update, waits until this chunk is committed: both count missed occurrences of
-- the same schedules. A take-over does not wait.
select from bucketd.partitions where partition_id = %(partition)s::int for key share;

-- name: waiting
-- Background rows that are due and wait for a runner, counted up to a bound, those that wait for a place included: expansion goes on
-- only while there are few.
select count(*) from (
    select from bucketd.runs
    where background and wake_at < 'infinity' and (wake_at <= bucketd.bucketd_now() or reason in ('target_busy', 'tenant_busy'))
    limit %(most)s::int
) r;

-- name: user_schedules
-- The next schedules of a user's backfill.
select id, spec_id, phase, jitter_offset_s, tenant, target_id
from bucketd.schedules s
where (%(cursor_id)s::uuid is null or id >= %(cursor_id)s::uuid)
    and (%(tenant)s::text is null or tenant = %(tenant)s::text)
    and (%(name)s::text is null or name = %(name)s::text)
    and (%(target_id)s::int is null or target_id = %(target_id)s::int)
    and (%(labels)s::jsonb is null or labels @> %(labels)s::jsonb)
order by id limit %(most)s::int;

-- name: settle_schedules
-- The next schedules of a window that is owed to a partition, with the bounds of their timing and of themselves.
select id, spec_id, phase, jitter_offset_s, extract(epoch from greatest(timing_from, starts_at))::float8,
    extract(epoch from floor)::float8, extract(epoch from ends_at)::float8,
    case when misfire = 'catch_up' then catch_up_cap else 0 end
from bucketd.schedules
where partition_id = %(partition)s::int and (%(cursor_id)s::uuid is null or id > %(cursor_id)s::uuid) and not paused
order by id limit %(most)s::int;

-- name: rows_of
-- How many rows these schedules have in their ranges, triggers apart. One walk through the keys of all ranges.
select r.schedule_id, count(*)
from bucketd.runs r
where r.schedule_id = any(%(ids)s::uuid[]) and r.origin <> 'trigger'
    and r.scheduled_at >= to_timestamp(%(low)s::bigint) and r.scheduled_at < to_timestamp(%(high)s::bigint)
    and r.scheduled_at >= to_timestamp((%(lows)s::bigint[])[array_position(%(ids)s::uuid[], r.schedule_id)])
    and r.scheduled_at < to_timestamp((%(highs)s::bigint[])[array_position(%(ids)s::uuid[], r.schedule_id)])
group by r.schedule_id;

-- name: insert
-- Occurrences of a user's backfill: those that have a row keep it. A held row waits like any other: wake parks it. Days that
-- retention has let go since it was asked for have expired.
insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, jitter_offset_s, status, origin, background, wake_at)
select to_timestamp(u.at_s), u.id, u.tenant, u.target_id, u.jitter, 'deferred', 'backfill', true, bucketd.bucketd_now()
from unnest(%(ids)s::uuid[], %(ats)s::bigint[], %(tenants)s::text[], %(targets)s::int[], %(jitters)s::int[])
    u(id, at_s, tenant, target_id, jitter)
where to_timestamp(u.at_s) >= (select days_from from bucketd.cluster)
order by u.at_s, u.id
on conflict do nothing;

-- name: move
-- How far the expansion has come; `done` ends it.
update bucketd.backfills set cursor_id = %(cursor_id)s::uuid, cursor_at = to_timestamp(%(cursor_at)s::bigint),
    runs_created = runs_created + %(created)s::bigint,
    finished_at = case when %(done)s::bool then bucketd.bucketd_now() end
where backfill_id = %(backfill_id)s::bigint;

-- name: refuse
-- Ends a backfill with what Postgres said of its next chunk.
update bucketd.backfills set error = %(error)s::text, finished_at = bucketd.bucketd_now()
where backfill_id = %(backfill_id)s::bigint;
