-- name: extent
-- How long the table of schedules is, in pages, and how many schedules a tenant has, counted to a bound.
select (pg_relation_size('bucketd.schedules') / current_setting('block_size')::int)::bigint,
    (select count(*) from (select from bucketd.schedules where tenant = %(tenant)s::text limit %(bound)s::int) t)

-- name: specs
-- Every rule (or those of a tenant), and how far its schedules may be moved.
select spec_id, rule, max_jitter_s from bucketd.specs
where %(tenant)s::text is null or spec_id = any(array(
    select distinct s.spec_id from bucketd.schedules s where s.tenant = %(tenant)s::text))

-- name: groups
-- Schedules of some pages, counted by what their fires of a window have in common. Seconds are relative to the window's start; units
-- are 60 s or 1 s long. A cron (pattern): a = the jitter in units, [b, c) = the minutes that its bounds leave. An interval or a
-- one-shot: a = the first due, in units, or with more dues (every_s) in gcd(every_s, unit) seconds; b = how many. `fires` is exact but
-- for a cron whose jitter or bounds cross the window's edges. The parts are fences (offset 0), so that the pages are read once, in
-- order. The join is a full one because that has to hash or to sort: a generic plan does not know how many come, and its nested loop
-- over all specs would take minutes.
with chosen as (
    select spec_id, jitter_offset_s, due_phase - %(start_s)s::bigint as phase_s, ends_at,
        greatest(floor, timing_from, starts_at, case when paused then paused_until end) as from_at,
        case %(by)s::text when 'tenant' then tenant when 'target' then target_id::text
            when 'partition' then partition_id::text end as dim
    from bucketd.schedules
    where ctid >= %(first)s::tid and ctid < %(last)s::tid and (not paused or paused_until is not null)
        and (%(tenant)s::text is null or tenant = %(tenant)s::text)
        and (%(target_id)s::int is null or target_id = %(target_id)s::int)
        and (%(labels)s::jsonb is null or labels @> %(labels)s::jsonb)
    offset 0
), bounded as (
    select spec_id, jitter_offset_s, phase_s, dim,
        case when from_at <= %(early)s::timestamptz then -3600 when from_at >= %(end)s::timestamptz then %(length_s)s::int
            else ceil(extract(epoch from from_at - %(start)s::timestamptz))::int end as from_s,
        case when ends_at is null or ends_at >= %(end)s::timestamptz then %(length_s)s::int
            when ends_at <= %(early)s::timestamptz then -3600
            else ceil(extract(epoch from ends_at - %(start)s::timestamptz))::int end as until_s
    from chosen where %(dims)s::text[] is null or dim = any(%(dims)s::text[])
    offset 0
), joined as (
    select b.*, u.pattern, u.fires, u.every_s, greatest(0, greatest(b.from_s, u.from_s) + b.jitter_offset_s) as lo_s,
        least(%(length_s)s::int, least(b.until_s, u.until_s) + b.jitter_offset_s) as hi_s
    from bounded b
    full join unnest(%(spec_id)s::int[], %(pattern)s::int[], %(fires)s::int[], %(every_s)s::int[], %(from_s)s::int[], %(until_s)s::int[])
        u(spec_id, pattern, fires, every_s, from_s, until_s) on u.spec_id = b.spec_id
    where u.spec_id is not distinct from b.spec_id
    offset 0
), begun as (
    select *, case when every_s is not null then lo_s + mod(mod(phase_s - lo_s, every_s) + every_s, every_s)
        when phase_s >= lo_s then phase_s else hi_s end as first_s
    from joined offset 0
), counted as (
    select *, case when pattern is not null or first_s >= hi_s then 0 when every_s is null then 1
        else ((hi_s - 1 - first_s) / every_s + 1)::int end as n
    from begun
), grouped as (
    select case when %(dims)s::text[] is not null then dim end as part, dim, pattern,
        case when pattern is null and n > 1 then every_s end as every_s,
        (case when pattern is not null then jitter_offset_s else first_s end
            / case when pattern is null and n > 1 then gcd(every_s, %(unit_s)s::int) else %(unit_s)s::int end)::int as a,
        case when pattern is null then n else ceil(from_s / 60.0::float8)::int end as b,
        case when pattern is null then null else ceil(until_s / 60.0::float8)::int end as c,
        case when pattern is null then n else fires end as fires
    from counted where pattern is not null or n > 0
)
select grouping(dim), part, pattern, every_s, a, b, c, dim, count(*), sum(fires)::bigint
from grouped group by grouping sets ((part, pattern, every_s, a, b, c), (dim))

-- name: peaks
-- What of some pages is due in some minutes: by second, spec, tenant and target. A cron comes with the one instant that is meant.
with chosen as (
    select spec_id, tenant, target_id, jitter_offset_s, due_phase, ends_at,
        greatest(floor, timing_from, starts_at, case when paused then paused_until end) as from_at
    from bucketd.schedules
    where ctid >= %(first)s::tid and ctid < %(last)s::tid and (not paused or paused_until is not null)
        and (%(tenant)s::text is null or tenant = %(tenant)s::text)
        and (%(target_id)s::int is null or target_id = %(target_id)s::int)
        and (%(labels)s::jsonb is null or labels @> %(labels)s::jsonb)
    offset 0
), joined as (
    select c.*, u.peak, u.minute_s, u.every_s, u.from_s, u.until_s,
        case when u.at_s is not null then u.at_s + c.jitter_offset_s when u.every_s is null then c.due_phase
            else u.minute_s + mod(mod(c.due_phase - u.minute_s, u.every_s) + u.every_s, u.every_s) end as first_s
    from chosen c
    full join unnest(%(spec_id)s::int[], %(peak)s::int[], %(minute_s)s::bigint[], %(at_s)s::bigint[], %(every_s)s::int[], %(from_s)s::bigint[],
        %(until_s)s::bigint[]) u(spec_id, peak, minute_s, at_s, every_s, from_s, until_s) on u.spec_id = c.spec_id
    where u.spec_id is not distinct from c.spec_id
    offset 0
), due as (
    select peak, (due_s - minute_s)::int as second, spec_id, tenant, target_id
    from joined cross join lateral generate_series(first_s, minute_s + 59, coalesce(every_s, 60)) d(due_s)
    where first_s >= minute_s and first_s < minute_s + 60
        and due_s - jitter_offset_s >= from_s and due_s - jitter_offset_s < until_s
        and to_timestamp((due_s - jitter_offset_s)::float8) >= from_at
        and (ends_at is null or to_timestamp((due_s - jitter_offset_s)::float8) < ends_at)
)
select grouping(second), grouping(spec_id), grouping(tenant), grouping(target_id), peak, second, spec_id, tenant, target_id, count(*)
from due group by grouping sets ((peak, second), (peak, spec_id), (peak, tenant), (peak, target_id))

-- name: members
-- The schedules of some pages that are due in one minute, with all that decides when they are due.
with chosen as (
    select id, spec_id, jitter_offset_s, due_phase, ends_at,
        greatest(floor, timing_from, starts_at, case when paused then paused_until end) as from_at
    from bucketd.schedules
    where ctid >= %(first)s::tid and ctid < %(last)s::tid and (not paused or paused_until is not null)
        and (%(tenant)s::text is null or tenant = %(tenant)s::text)
        and (%(target_id)s::int is null or target_id = %(target_id)s::int)
        and (%(labels)s::jsonb is null or labels @> %(labels)s::jsonb)
    offset 0
), joined as (
    select c.*, u.minute_s, u.every_s, u.from_s, u.until_s,
        case when u.at_s is not null then u.at_s + c.jitter_offset_s when u.every_s is null then c.due_phase
            else u.minute_s + mod(mod(c.due_phase - u.minute_s, u.every_s) + u.every_s, u.every_s) end as first_s
    from chosen c
    full join unnest(%(spec_id)s::int[], %(minute_s)s::bigint[], %(at_s)s::bigint[], %(every_s)s::int[], %(from_s)s::bigint[], %(until_s)s::bigint[])
        u(spec_id, minute_s, at_s, every_s, from_s, until_s) on u.spec_id = c.spec_id
    where u.spec_id is not distinct from c.spec_id
    offset 0
)
select id, spec_id, due_phase, jitter_offset_s, extract(epoch from from_at)::float8, extract(epoch from ends_at)::float8
from joined
where first_s >= minute_s and first_s < minute_s + 60 and exists (
    select from generate_series(first_s, minute_s + 59, coalesce(every_s, 60)) d(due_s)
    where due_s - jitter_offset_s >= from_s and due_s - jitter_offset_s < until_s
        and to_timestamp((due_s - jitter_offset_s)::float8) >= from_at
        and (ends_at is null or to_timestamp((due_s - jitter_offset_s)::float8) < ends_at))

-- name: expressions
-- How an author typed each of these specs, and its rule.
select p.spec_id, p.rule, coalesce((select s.expression from bucketd.schedules s where s.spec_id = p.spec_id and not s.paused limit 1), '')
from bucketd.specs p where p.spec_id = any(%(specs)s::int[])

-- name: target_names
-- Names of targets by id.
select target_id, name from bucketd.targets where target_id = any(%(ids)s::int[])
