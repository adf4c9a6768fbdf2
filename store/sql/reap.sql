-- name: bury
-- Runners without a heartbeat are dead from now on, for good: a woken one finds its row dead and cannot confirm.
update bucketd.runners set dead_at = bucketd.bucketd_now()
where dead_at is null and heartbeat_at < bucketd.bucketd_now() - %(dead_after_s)s::float8 * interval '1 second'
returning runner_id, host, pid;

-- name: claims
-- Claims without a live runner, locked against another reaper.
select c.claim, c.instants from bucketd.claims c
where not exists (select from bucketd.runners r where r.runner_id = c.runner_id and r.dead_at is null)  -- guard: living-claims
order by c.claim limit %(most)s::int for update of c skip locked;

-- name: recover
-- The rows of dead claims wake for another attempt; the attempt itself is counted by whoever claims it.
-- Answers how many.
with k as (
    select r.scheduled_at, r.schedule_id, r.claim
    from (select distinct i from unnest(%(instants)s::timestamptz[]) i) u
    join bucketd.runs r on r.scheduled_at = u.i
    where r.claim = any(%(claims)s::bigint[])  -- guard: reaped-claims
        and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at <= %(high)s::timestamptz
    order by r.scheduled_at, r.schedule_id for update of r
), woken as (
    update bucketd.runs r set status = 'retrying', claim = null, wake_at = bucketd.bucketd_now(), reason = 'runner_lost'
    from k
    where r.scheduled_at = k.scheduled_at and r.schedule_id = k.schedule_id and r.claim = k.claim
        and r.scheduled_at >= %(low)s::timestamptz and r.scheduled_at <= %(high)s::timestamptz
    returning r.schedule_id, r.scheduled_at
)
select count(*), (select bucketd.keep_slots(array_agg(schedule_id), array_agg(scheduled_at)) from woken) from woken;

-- name: drop_claims
-- Claims that were recovered.
delete from bucketd.claims where claim = any(%(claims)s::bigint[]);

-- name: orphans
-- Running rows whose claim is not there. A claim goes in the statement that writes its last result; so only a defect can leave one
-- behind, or a failover that lost the result of another run of the claim, which the runner had counted.
update bucketd.runs r set status = 'retrying', claim = null, wake_at = bucketd.bucketd_now(), reason = 'runner_lost'
where r.claim is not null and r.status = 'running'
    and r.scheduled_at >= bucketd.bucketd_now() - interval '2 days' and r.scheduled_at < bucketd.bucketd_now()
    and r.started_at < bucketd.bucketd_now() - %(older_than_s)s::float8 * interval '1 second'
    and not exists (select from bucketd.claims c where c.claim = r.claim);

-- name: stranded
-- Whether rows may be held by nothing: a release was interrupted, or a wake that saw a hold and its release passed each other; and
-- whether anything is on hold. While everything is, there are none.
select not exists (select from bucketd.holds where scope = 'all') and exists (
        select from bucketd.runs where wake_at = 'infinity' and background = any(array[false, true]) and status = 'held'),
    exists (select from bucketd.holds);

-- name: forget_slots
-- Slots of runs that ended long ago: a schedule that asks seldom needs no row in between.
delete from bucketd.slots o using (
    select schedule_id from bucketd.slots where scheduled_at < bucketd.bucketd_now() - interval '1 hour' limit 20000
) old
where o.schedule_id = old.schedule_id and o.scheduled_at < bucketd.bucketd_now() - interval '1 hour'
    and not exists (select from bucketd.runs r where r.scheduled_at = o.scheduled_at and r.schedule_id = o.schedule_id
        and r.status not in ('succeeded', 'skipped', 'cancelled', 'dead'));

-- name: forget
-- Dead runners are kept an hour for people to see.
delete from bucketd.runners r where r.dead_at < bucketd.bucketd_now() - interval '1 hour'
    and not exists (select from bucketd.claims c where c.runner_id = r.runner_id);
