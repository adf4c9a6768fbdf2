-- name: sweep
-- Claims of a live runner that it knows nothing of: their statement's reply was lost and no retry saw its rows. None of their
-- runs was ever called, so the attempt's number is free again; unless (`called`) their results were lost with a piece of history.
with clock as materialized (
    select bucketd.bucketd_now() as now
), lost as materialized (
    select c.claim, c.instants from bucketd.claims c cross join clock k
    where c.runner_id = %(runner)s::uuid and c.created_at < k.now - %(older_than_s)s::float8 * interval '1 second'
        and c.claim <> all(%(known)s::bigint[])
    order by c.claim for update of c skip locked
), held as materialized (
    select r.scheduled_at, r.schedule_id, r.claim
    from lost l cross join unnest(l.instants) i(at) join bucketd.runs r on r.scheduled_at = i.at and r.claim = l.claim
    order by r.scheduled_at, r.schedule_id
), freed as (
    update bucketd.runs r set status = 'retrying', claim = null, wake_at = k.now, attempt = r.attempt - (not %(called)s::bool)::int,
        reason = case when %(called)s::bool then 'runner_lost' when r.attempt > 1 then 'replayed' else r.reason end  -- whoever bought this attempt has it still
    from clock k cross join held h
    where r.scheduled_at = h.scheduled_at and r.schedule_id = h.schedule_id and r.claim = h.claim
    returning 1
), gone as (
    delete from bucketd.claims where claim in (select claim from lost)
)
select (select count(*) from lost), (select count(*) from freed)

-- name: taken_away
-- Of these runs those that their claim does not hold any more: they were cancelled, or belong to another attempt.
select u.n::int
from unnest(%(ids)s::uuid[], %(ats)s::timestamptz[], %(claims)s::bigint[]) with ordinality u(id, at, claim, n)
left join lateral (
    select true as found from bucketd.runs r where r.scheduled_at = u.at and r.schedule_id = u.id and r.claim = u.claim limit 1
) r on true
where r.found is null
