-- name: list
-- Dead letters, newest first, before an id.
select d.dead_letter_id, d.schedule_id, d.scheduled_at, d.tenant, d.name, t.name, d.payload::text, d.reason, d.attempts,
    d.failures::text, d.died_at
from bucketd.dead_letters d left join bucketd.targets t on t.target_id = d.target_id
where (%(ids)s::bigint[] is null or d.dead_letter_id = any(%(ids)s::bigint[]))
    and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
    and (%(name)s::text is null or d.name = %(name)s::text)
    and (%(target)s::text is null or t.name = %(target)s::text)
    and (%(before)s::bigint is null or d.dead_letter_id < %(before)s::bigint)
order by d.dead_letter_id desc limit %(limit)s::integer

-- name: count
-- Dead letters, counted up to a bound.
select count(*) from (
    select from bucketd.dead_letters d
    where (%(ids)s::bigint[] is null or d.dead_letter_id = any(%(ids)s::bigint[]))
        and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
        and (%(name)s::text is null or d.name = %(name)s::text)
        and (%(target)s::text is null or d.target_id = (select t.target_id from bucketd.targets t where t.name = %(target)s::text))
    limit %(bound)s::integer) l

-- name: replay
-- Sends the runs of a stretch of dead letters back to be taken now, and deletes those letters. Answers one row: letters looked at,
-- letters replayed, the last id looked at, and some that stay, with what stands in the way.
with letters as materialized (
    select d.dead_letter_id, d.schedule_id, d.scheduled_at
    from bucketd.dead_letters d left join bucketd.targets t on t.target_id = d.target_id
    where (%(ids)s::bigint[] is null or d.dead_letter_id = any(%(ids)s::bigint[]))
        and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
        and (%(name)s::text is null or d.name = %(name)s::text)
        and (%(target)s::text is null or t.name = %(target)s::text)
        and d.dead_letter_id > %(after)s::bigint
    order by d.dead_letter_id limit %(limit)s::integer for update of d
), back as (
    update bucketd.runs r set status = 'deferred', wake_at = bucketd.bucketd_now(), finished_at = null, reason = 'replayed'
    from letters l
    where r.scheduled_at = l.scheduled_at and r.schedule_id = l.schedule_id and r.status = 'dead'
        and exists (select from bucketd.schedules s where s.id = l.schedule_id)
    returning l.dead_letter_id
), gone as (
    delete from bucketd.dead_letters d using back b where d.dead_letter_id = b.dead_letter_id
)
select (select count(*) from letters), (select count(*) from back), (select max(dead_letter_id) from letters), array(
    select l.dead_letter_id || ' (' || case
            when not exists (select from bucketd.schedules s where s.id = l.schedule_id) then 'its schedule was deleted'
            when r.status is null then 'the day of its run was dropped'
            else 'its run is ' || r.status::text end || ')'
    from letters l left join bucketd.runs r on r.scheduled_at = l.scheduled_at and r.schedule_id = l.schedule_id
    where l.dead_letter_id not in (select dead_letter_id from back)
    order by l.dead_letter_id limit 5)

-- name: discard
-- Deletes dead letters; their runs stay dead.
delete from bucketd.dead_letters d
where (%(ids)s::bigint[] is null or d.dead_letter_id = any(%(ids)s::bigint[]))
    and (%(tenant)s::text is null or d.tenant = %(tenant)s::text)
    and (%(name)s::text is null or d.name = %(name)s::text)
    and (%(target)s::text is null or d.target_id = (select t.target_id from bucketd.targets t where t.name = %(target)s::text))
returning dead_letter_id
