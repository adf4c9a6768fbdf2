-- name: find
-- What a put needs to know of the (tenant, name) pairs it is about: the schedules that exist, with their timing. The pairs come as
-- two JSON lists: a tenth of the client's work for text arrays.
select n.ord::integer, s.id, s.phase, p.kind, p.every_s, s.spec_id, s.revision, s.max_runs, s.starts_at, s.ends_at
from rows from (json_array_elements_text(%(tenants)s::json), json_array_elements_text(%(names)s::json))
    with ordinality n(tenant, name, ord)
join bucketd.schedules s on s.tenant = n.tenant and s.name = n.name
join bucketd.specs p on p.spec_id = s.spec_id

-- name: now
-- The cluster's clock.
select extract(epoch from bucketd.bucketd_now())::float8

-- name: put
-- Creates or changes one schedule; no row comes back, and nothing is written, if it is as asked already.
insert into bucketd.schedules as s (id, tenant, name, spec_id, phase, jitter_s, target_id, expression, payload, timeout_s,
    max_attempts, retry_base_s, retry_cap_s, overlap, misfire, misfire_threshold_s, deadline_s, catch_up_window_s, catch_up_cap,
    labels, paused, starts_at, ends_at, max_runs, exclude_dates, calendars)
select n.id, n.tenant, n.name, n.spec_id, n.phase, n.jitter_s, n.target_id, n.expression, n.payload, n.timeout_s,
    n.max_attempts, n.retry_base_s, n.retry_cap_s, n.overlap, n.misfire, n.misfire_threshold_s, n.deadline_s, n.catch_up_window_s,
    n.catch_up_cap, n.labels, coalesce(n.paused, o.paused, false), n.starts_at, n.ends_at, n.max_runs, n.exclude_dates, n.calendars
from (select %(id)s::uuid as id, %(tenant)s::text as tenant, %(name)s::text as name, %(spec_id)s::integer as spec_id,
        %(phase)s::bigint as phase, %(jitter_s)s::integer as jitter_s, %(target_id)s::integer as target_id,
        %(expression)s::text as expression, %(payload)s::json as payload, %(timeout_s)s::integer as timeout_s,
        %(max_attempts)s::smallint as max_attempts, %(retry_base_s)s::real as retry_base_s, %(retry_cap_s)s::real as retry_cap_s,
        %(overlap)s::text as overlap, %(misfire)s::text as misfire, %(misfire_threshold_s)s::integer as misfire_threshold_s,
        %(deadline_s)s::integer as deadline_s, %(labels)s::jsonb as labels, %(paused)s::boolean as paused,
        %(starts_at)s::timestamptz as starts_at, %(ends_at)s::timestamptz as ends_at,
        %(catch_up_window_s)s::integer as catch_up_window_s, %(catch_up_cap)s::integer as catch_up_cap,
        %(max_runs)s::integer as max_runs, %(exclude_dates)s::date[] as exclude_dates, %(calendars)s::text[] as calendars) n
left join bucketd.schedules o on o.tenant = n.tenant and o.name = n.name
where o.id is null
    or (o.spec_id, o.phase, o.jitter_s, o.target_id, o.expression, o.payload::text, o.timeout_s, o.max_attempts, o.retry_base_s,
        o.retry_cap_s, o.overlap, o.misfire, o.misfire_threshold_s, o.deadline_s, o.catch_up_window_s, o.catch_up_cap, o.labels,
        o.paused, o.starts_at, o.ends_at, o.max_runs, o.exclude_dates, o.calendars)
    is distinct from
    (n.spec_id, n.phase, n.jitter_s, n.target_id, n.expression, n.payload::text, n.timeout_s, n.max_attempts, n.retry_base_s,
        n.retry_cap_s, n.overlap, n.misfire, n.misfire_threshold_s, n.deadline_s, n.catch_up_window_s, n.catch_up_cap, n.labels,
        coalesce(n.paused, o.paused), n.starts_at, n.ends_at, n.max_runs, n.exclude_dates, n.calendars)
    or (not n.paused and o.paused_until > bucketd.bucketd_now())
on conflict (tenant, name) do update set spec_id = excluded.spec_id, phase = excluded.phase, jitter_s = excluded.jitter_s,
    target_id = excluded.target_id, expression = excluded.expression, payload = excluded.payload, timeout_s = excluded.timeout_s,
    max_attempts = excluded.max_attempts, retry_base_s = excluded.retry_base_s, retry_cap_s = excluded.retry_cap_s,
    overlap = excluded.overlap, misfire = excluded.misfire, misfire_threshold_s = excluded.misfire_threshold_s,
    deadline_s = excluded.deadline_s, catch_up_window_s = excluded.catch_up_window_s, catch_up_cap = excluded.catch_up_cap,
    labels = excluded.labels, paused = coalesce(%(paused)s::boolean, s.paused),
    pause_reason = case when %(paused)s::boolean is not false then s.pause_reason end,
    paused_until = case when %(paused)s::boolean is not false then s.paused_until end,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at, max_runs = excluded.max_runs,
    exclude_dates = excluded.exclude_dates, calendars = excluded.calendars
where s.id = excluded.id and (%(if_revision)s::integer is null or s.revision = %(if_revision)s::integer)
returning s.id, s.revision

-- name: stage_make
-- A place for one chunk of a bulk put, in the session alone.
create temporary table bucketd_put (id uuid, tenant text, name text, spec_id integer, phase bigint, jitter_s integer,
    target_id integer, expression text, payload json, timeout_s integer, max_attempts smallint, retry_base_s real, retry_cap_s real,
    overlap text, misfire text, misfire_threshold_s integer, deadline_s integer, labels jsonb, paused boolean, starts_at timestamptz,
    ends_at timestamptz, catch_up_window_s integer, catch_up_cap integer, max_runs integer, exclude_dates date[], calendars text[])
    on commit drop

-- name: stage_copy
-- Fills it.
copy pg_temp.bucketd_put from stdin

-- name: stage_put
-- `put` for every row of the chunk. By (tenant, name): two chunks in different order would deadlock. `keep_paused`: no row says
-- whether it is paused, so a pause that commits meanwhile stays.
insert into bucketd.schedules as s (id, tenant, name, spec_id, phase, jitter_s, target_id, expression, payload, timeout_s,
    max_attempts, retry_base_s, retry_cap_s, overlap, misfire, misfire_threshold_s, deadline_s, catch_up_window_s, catch_up_cap,
    labels, paused, starts_at, ends_at, max_runs, exclude_dates, calendars)
select n.id, n.tenant, n.name, n.spec_id, n.phase, n.jitter_s, n.target_id, n.expression, n.payload, n.timeout_s,
    n.max_attempts, n.retry_base_s, n.retry_cap_s, n.overlap, n.misfire, n.misfire_threshold_s, n.deadline_s, n.catch_up_window_s,
    n.catch_up_cap, n.labels, coalesce(n.paused, o.paused, false), n.starts_at, n.ends_at, n.max_runs, n.exclude_dates, n.calendars
from pg_temp.bucketd_put n
left join bucketd.schedules o on o.tenant = n.tenant and o.name = n.name
where o.id is null
    or (o.spec_id, o.phase, o.jitter_s, o.target_id, o.expression, o.payload::text, o.timeout_s, o.max_attempts, o.retry_base_s,
        o.retry_cap_s, o.overlap, o.misfire, o.misfire_threshold_s, o.deadline_s, o.catch_up_window_s, o.catch_up_cap, o.labels,
        o.paused, o.starts_at, o.ends_at, o.max_runs, o.exclude_dates, o.calendars)
    is distinct from
    (n.spec_id, n.phase, n.jitter_s, n.target_id, n.expression, n.payload::text, n.timeout_s, n.max_attempts, n.retry_base_s,
        n.retry_cap_s, n.overlap, n.misfire, n.misfire_threshold_s, n.deadline_s, n.catch_up_window_s, n.catch_up_cap, n.labels,
        coalesce(n.paused, o.paused), n.starts_at, n.ends_at, n.max_runs, n.exclude_dates, n.calendars)
    or (not n.paused and o.paused_until > bucketd.bucketd_now())
order by n.tenant, n.name
on conflict (tenant, name) do update set spec_id = excluded.spec_id, phase = excluded.phase, jitter_s = excluded.jitter_s,
    target_id = excluded.target_id, expression = excluded.expression, payload = excluded.payload, timeout_s = excluded.timeout_s,
    max_attempts = excluded.max_attempts, retry_base_s = excluded.retry_base_s, retry_cap_s = excluded.retry_cap_s,
    overlap = excluded.overlap, misfire = excluded.misfire, misfire_threshold_s = excluded.misfire_threshold_s,
    deadline_s = excluded.deadline_s, catch_up_window_s = excluded.catch_up_window_s, catch_up_cap = excluded.catch_up_cap,
    labels = excluded.labels, paused = case when %(keep_paused)s::boolean then s.paused else excluded.paused end,
    pause_reason = case when %(keep_paused)s::boolean or excluded.paused then s.pause_reason end,
    paused_until = case when %(keep_paused)s::boolean or excluded.paused then s.paused_until end,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at, max_runs = excluded.max_runs,
    exclude_dates = excluded.exclude_dates, calendars = excluded.calendars
where s.id = excluded.id
returning s.id, s.revision

-- name: stage_drop
-- Makes room for the next chunk of the same transaction.
drop table pg_temp.bucketd_put

-- name: list
-- Schedules by (tenant, name) after a pair, filtered.
select s.id, s.tenant, s.name, p.kind, p.rule, p.every_s, s.phase, s.expression, t.name, s.payload::text, s.labels::text,
    s.timeout_s, s.overlap, s.misfire, s.misfire_threshold_s, s.deadline_s, s.jitter_s, s.jitter_offset_s, s.starts_at, s.ends_at,
    s.paused or coalesce(s.paused_until > bucketd.bucketd_now(), false), s.revision, s.created_at, s.updated_at,
    extract(epoch from s.floor)::float8, extract(epoch from s.timing_from)::float8, s.catch_up_window_s, s.catch_up_cap,
    s.pause_reason, s.paused_until, s.max_runs, s.exclude_dates, s.calendars, s.max_attempts, s.retry_base_s, s.retry_cap_s
from bucketd.schedules s
join bucketd.specs p on p.spec_id = s.spec_id
join bucketd.targets t on t.target_id = s.target_id
where (%(after_tenant)s::text is null or (s.tenant, s.name) > (%(after_tenant)s::text, %(after_name)s::text))
    and (%(tenant)s::text is null or s.tenant = %(tenant)s::text)
    and (%(name)s::text is null or s.name = %(name)s::text)
    and (%(target)s::text is null or t.name = %(target)s::text)
    and (%(labels)s::jsonb is null or s.labels @> %(labels)s::jsonb)
    and (%(paused)s::boolean is null
        or (s.paused or coalesce(s.paused_until > bucketd.bucketd_now(), false)) = %(paused)s::boolean)
    and (%(prefix)s::text is null or starts_with(s.name, %(prefix)s::text))
order by s.tenant, s.name limit %(limit)s::integer

-- name: pause
-- Pauses; no row comes back if it is so already, missing, or at another revision than expected.
update bucketd.schedules set paused = true, pause_reason = %(reason)s::text, paused_until = %(until)s::timestamptz
where tenant = %(tenant)s::text and name = %(name)s::text
    and (paused or coalesce(paused_until > bucketd.bucketd_now(), false), pause_reason, paused_until)
        is distinct from (true, %(reason)s::text, %(until)s::timestamptz)
    and (%(if_revision)s::integer is null or revision = %(if_revision)s::integer)
returning id

-- name: lift
-- Lifts a pause that ends soon, at once: the floor keeps it still until then, and nobody has to be in time for its end.
update bucketd.schedules set paused = false
where tenant = %(tenant)s::text and name = %(name)s::text and paused
    and paused_until <= bucketd.bucketd_now() + %(soon_s)s::int * interval '1 second'
returning id

-- name: resume
-- Resumes, also what was lifted already because its pause is about to end; otherwise as `pause`.
update bucketd.schedules set paused = false, pause_reason = null, paused_until = null
where tenant = %(tenant)s::text and name = %(name)s::text and (paused or paused_until > bucketd.bucketd_now())
    and (%(if_revision)s::integer is null or revision = %(if_revision)s::integer)
returning id

-- name: keys
-- The schedules of some tenants after a pair, by (tenant, name).
select tenant, name, id from bucketd.schedules
where tenant = any(%(tenants)s::text[])
    and (%(after_tenant)s::text is null or (tenant, name) > (%(after_tenant)s::text, %(after_name)s::text))
order by tenant, name limit %(limit)s::integer

-- name: delete
-- Deletes schedules, in the order in which puts write them.
with gone as (
    select id from bucketd.schedules where id = any(%(ids)s::uuid[])
        and (%(if_revision)s::integer is null or revision = %(if_revision)s::integer) order by tenant, name for update
)
delete from bucketd.schedules s using gone where s.id = gone.id
returning s.id, s.tenant

-- name: cancel_waiting
-- Cancels runs of deleted schedules that wait for a wake-up. A statement of its own after `delete`: it sees later commits.
update bucketd.runs set status = 'cancelled', claim = null, wake_at = null, finished_at = bucketd.bucketd_now(), reason = 'deleted'
where wake_at is not null and tenant = any(%(tenants)s::text[]) and schedule_id = any(%(ids)s::uuid[])

-- name: cancel_running
-- Cancels runs of deleted schedules that a runner holds: their instants stand in the claims. Their results will be fenced.
update bucketd.runs set status = 'cancelled', claim = null, wake_at = null, finished_at = bucketd.bucketd_now(), reason = 'deleted'
where claim is not null and schedule_id = any(%(ids)s::uuid[])
    and scheduled_at = any(array(select distinct unnest(instants) from bucketd.claims))

-- name: days
-- For which instants runs has a day, and the clock.
select days_from, days_through, retention_floor, bucketd.bucketd_now() from bucketd.cluster

-- name: make_days
-- Makes the days of a range. It must touch the days that exist: confirm asks for one interval, not for a list of days.
select bucketd.make_days(%(from_at)s::timestamptz, %(through_at)s::timestamptz)

-- name: taken
-- Of these occurrences of a schedule those that have a row, and whether a user skipped it.
select r.scheduled_at, r.status = 'skipped' and r.reason = 'user'
from bucketd.runs r where r.schedule_id = %(id)s::uuid and r.scheduled_at = any(%(instants)s::timestamptz[])

-- name: skip
-- Takes the key of an occurrence, so that it never fires; no row comes back if it has a run already.
insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, jitter_offset_s, status, origin, reason, finished_at)
select %(at)s::timestamptz, s.id, s.tenant, s.target_id, s.jitter_offset_s, 'skipped', 'fire', 'user', bucketd.bucketd_now()
from bucketd.schedules s where s.id = %(id)s::uuid
on conflict do nothing
returning scheduled_at

-- name: trigger
-- A run beside the schedule. Its instant is the clock's, moved off the whole second, where occurrences lie.
insert into bucketd.runs (scheduled_at, schedule_id, tenant, target_id, status, origin, wake_at)
select case when c.now = date_trunc('second', c.now) then c.now + interval '1 microsecond' else c.now end,
    s.id, s.tenant, s.target_id, 'deferred', 'trigger', c.now
from (select bucketd.bucketd_now() as now) c, bucketd.schedules s
where s.tenant = %(tenant)s::text and s.name = %(name)s::text
on conflict do nothing
returning schedule_id, scheduled_at
