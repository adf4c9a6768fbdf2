-- name: due
-- Targets behind an id whose hooks are due to hear of a dead run, with their revisions and hooks (null: they have none any more). Leaps
-- from target to target: costs those, not what waits.
with recursive clock as materialized (
    select bucketd.bucketd_now() as now
), found as (
    (select target_id, hook_at from bucketd.dead_letters where hook_at < 'infinity' and target_id > %(after)s::int
    order by target_id, hook_at limit 1)
    union all
    select n.target_id, n.hook_at from found f cross join lateral (
        select target_id, hook_at from bucketd.dead_letters where hook_at < 'infinity' and target_id > f.target_id
        order by target_id, hook_at limit 1) n
)
select f.target_id, t.revision, t.dead_hook_url
from clock k cross join found f left join bucketd.targets t on t.target_id = f.target_id
where f.hook_at <= k.now
order by f.target_id limit %(most)s::int

-- name: take
-- Of these targets as many dead letters as they have places, the longest due first. Nobody else takes one of them for `lease_s`; if its
-- taker dies, somebody does then.
with clock as materialized (
    select bucketd.bucketd_now() as now
), taken as materialized (
    select d.dead_letter_id
    from unnest(%(targets)s::int[], %(places)s::int[]) p(target_id, places) cross join lateral (
        select dead_letter_id from bucketd.dead_letters
        where target_id = p.target_id and hook_at < 'infinity' and hook_at <= (select now from clock)
        order by hook_at limit p.places for update skip locked) d
)
update bucketd.dead_letters d set hook_at = k.now + %(lease_s)s::float8 * interval '1 second', hook_tries = d.hook_tries + 1
from clock k cross join taken n
where d.dead_letter_id = n.dead_letter_id
returning d.dead_letter_id, d.hook_tries, d.target_id, d.schedule_id, d.scheduled_at, d.tenant, d.name, d.reason, d.attempts,
    coalesce(d.failures -> -1 ->> 'error', ''), d.died_at

-- name: told
-- The hook has heard of it. Nothing happens if somebody else has taken it since.
update bucketd.dead_letters set hook_at = null
where dead_letter_id = %(letter)s::bigint and hook_tries = %(tries)s::smallint

-- name: failed
-- The hook is told again after a delay, or (no delay) never. Nothing happens if somebody else has taken it since.
update bucketd.dead_letters
set hook_at = coalesce(bucketd.bucketd_now() + %(delay_s)s::float8 * interval '1 second', 'infinity')
where dead_letter_id = %(letter)s::bigint and hook_tries = %(tries)s::smallint

-- name: drop
-- Of targets that have no hook any more: some letters that nobody is to hear of.
update bucketd.dead_letters d set hook_at = null, hook_tries = 0
where d.dead_letter_id in (
    select l.dead_letter_id from bucketd.dead_letters l
    where l.target_id = any(%(targets)s::int[]) and l.hook_at < 'infinity'
    order by l.target_id, l.hook_at limit %(most)s::int for update skip locked)
