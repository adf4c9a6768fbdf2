-- name: join
-- A new incarnation of a runner.
insert into bucketd.runners (runner_id, host, pid, message_version, started_at, heartbeat_at)
select %(runner)s::uuid, %(host)s, %(pid)s::int, %(message_version)s::smallint, now, now
from (select bucketd.bucketd_now() as now) k
returning bucketd.history()

-- name: beat
-- Renews the lease, unless it has run out or the reaper has ended it: what is dead stays dead. No row: dead. Answers the history of Postgres.
update bucketd.runners set heartbeat_at = k.now
from (select bucketd.bucketd_now() as now) k
where runner_id = %(runner)s::uuid
    and dead_at is null  -- guard: dead-for-good
    and heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second'  -- guard: lapsed-lease
returning bucketd.history()

-- name: leave
-- The runner's own end: what it still holds is the reaper's at once.
update bucketd.runners set dead_at = bucketd.bucketd_now() where runner_id = %(runner)s::uuid and dead_at is null

-- name: targets
-- What a call needs to know about these targets. A secret that has ended is none.
select t.target_id, t.revision, t.name, t.url, t.headers, t.connect_timeout_s::float8 as connect_timeout_s,
    t.timeout_s::float8 as timeout_s, t.max_attempts, t.retry_base_s::float8 as retry_base_s, t.retry_cap_s::float8 as retry_cap_s,
    t.batch_max, t.batch_linger_ms, t.batch_by_tenant, t.body, t.max_running, t.rate_per_s::float8 as rate_per_s,
    t.complete_within_s, s.sealed, case when s.old_until > bucketd.bucketd_now() then s.old_sealed end as old_sealed,
    extract(epoch from s.old_until)::float8 as old_until_s
from bucketd.targets t left join bucketd.target_secrets s on s.target_id = t.target_id
where t.target_id = any(%(targets)s::int[])
