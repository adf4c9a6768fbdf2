-- name: list
-- Dead letters, newest first, before an id: what each of them says, what of its schedule is different by now (null: it is gone), and
-- how far its hook is.
select d.dead_letter_id, d.schedule_id, d.scheduled_at, d.tenant, d.name, t.name, d.payload::text, d.reason, d.attempts,
    d.failures::text, d.died_at,
    case when s.id is not null then array_remove(array[
        case when s.payload::text <> d.payload::text then 'payload' end, case when s.target_id <> d.target_id then 'target' end], null) end,
    case when d.hook_at = 'infinity' then 'given up' when d.hook_at is not null then 'waiting' when d.hook_tries > 0 then 'told' end,
    d.hook_tries
from bucketd.dead_letters d
left join bucketd.targets t on t.target_id = d.target_id
left join bucketd.schedules s on s.id = d.schedule_id
where (%(ids)s::bigint[] is null or d.dead_letter_id = any(%(ids)s::bigint[]))
    and (%(before)s::bigint is null or d.dead_letter_id < %(before)s::bigint)
    and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
    and (%(name)s::text is null or d.name = %(name)s::text)
    and (%(target)s::text is null or t.name = %(target)s::text)
    and (%(reason)s::text is null or d.reason = %(reason)s::text)
    and (%(died_from)s::timestamptz is null or d.died_at >= %(died_from)s::timestamptz)
    and (%(died_until)s::timestamptz is null or d.died_at < %(died_until)s::timestamptz)
    and (%(labels)s::jsonb is null or s.labels @> %(labels)s::jsonb)
order by d.dead_letter_id desc limit %(limit)s::integer

-- name: last
-- The newest id: whoever goes through dead letters stops there, and does not meet again what dies anew on the way.
select coalesce(max(dead_letter_id), 0) from bucketd.dead_letters

-- name: find
-- Ids of the dead letters that fit, oldest first, after an id and up to another.
select d.dead_letter_id from bucketd.dead_letters d
where d.dead_letter_id > %(after)s::bigint and d.dead_letter_id <= %(last)s::bigint
    and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
    and (%(name)s::text is null or d.name = %(name)s::text)
    and (%(target)s::text is null or d.target_id = (select t.target_id from bucketd.targets t where t.name = %(target)s::text))
    and (%(reason)s::text is null or d.reason = %(reason)s::text)
    and (%(died_from)s::timestamptz is null or d.died_at >= %(died_from)s::timestamptz)
    and (%(died_until)s::timestamptz is null or d.died_at < %(died_until)s::timestamptz)
    and (%(labels)s::jsonb is null or exists (
        select from bucketd.schedules s where s.id = d.schedule_id and s.labels @> %(labels)s::jsonb))
order by d.dead_letter_id limit %(limit)s::integer

-- name: replay
-- Sends the runs of these dead letters back and deletes the letters: the first run is to be taken at `first_at`, or now if that is
-- past, each other one `apart_s` behind the one before. Answers one row: letters looked at, letters replayed (dry_run: that would be),
-- when the next one would be taken, and some of those that stay, with what stands in the way.
with clock as materialized (
    select greatest(%(first_at)s::timestamptz, bucketd.bucketd_now()) as first_at
), letters as materialized (
    select d.dead_letter_id, d.schedule_id, d.scheduled_at from bucketd.dead_letters d
    where d.dead_letter_id = any(%(ids)s::bigint[]) order by d.dead_letter_id for update
), judged as materialized (
    select l.*, case
            when not exists (select from bucketd.schedules s where s.id = l.schedule_id) then 'its schedule was deleted'
            when r.status is null then 'the day of its run was dropped'
            when r.status <> 'dead' then 'its run is ' || r.status::text end as in_the_way
    from letters l left join bucketd.runs r on r.scheduled_at = l.scheduled_at and r.schedule_id = l.schedule_id
), going as materialized (
    select j.*, row_number() over (order by j.dead_letter_id) - 1 as place from judged j where j.in_the_way is null
), back as (
    update bucketd.runs r set status = 'deferred', finished_at = null, reason = 'replayed',
        wake_at = k.first_at + g.place * %(apart_s)s::float8 * interval '1 second'
    from clock k cross join going g
    where not %(dry_run)s::boolean and r.scheduled_at = g.scheduled_at and r.schedule_id = g.schedule_id and r.status = 'dead'
    returning g.dead_letter_id
), gone as (
    delete from bucketd.dead_letters d using back b where d.dead_letter_id = b.dead_letter_id
)
select (select count(*) from letters),
    case when %(dry_run)s::boolean then (select count(*) from going) else (select count(*) from back) end,
    k.first_at + (select count(*) from going) * %(apart_s)s::float8 * interval '1 second',
    array(select j.dead_letter_id || ' (' || j.in_the_way || ')' from judged j where j.in_the_way is not null order by j.dead_letter_id limit 5)
from clock k

-- name: discard
-- Deletes these dead letters, and with them what their hooks have not heard yet; their runs stay dead.
delete from bucketd.dead_letters where dead_letter_id = any(%(ids)s::bigint[]) returning dead_letter_id
