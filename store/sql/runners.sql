-- name: join
-- A new incarnation of a runner.
insert into bucketd.runners (runner_id, host, pid, message_version, started_at, heartbeat_at)
select %(runner)s::uuid, %(host)s, %(pid)s::int, %(message_version)s::smallint, now, now
from (select bucketd.bucketd_now() as now) k

-- name: beat
-- Renews the lease, unless it has run out or the reaper has ended it: what is dead stays dead. No row: dead.
update bucketd.runners set heartbeat_at = k.now
from (select bucketd.bucketd_now() as now) k
where runner_id = %(runner)s::uuid and dead_at is null
    and heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second'
returning runner_id

-- name: leave
-- The runner's own end: what it still holds is the reaper's at once.
update bucketd.runners set dead_at = bucketd.bucketd_now() where runner_id = %(runner)s::uuid and dead_at is null

-- name: targets
-- What a call needs to know about these targets.
select target_id, revision, name, url, headers, connect_timeout_s::float8 as connect_timeout_s, timeout_s::float8 as timeout_s,
    max_attempts, retry_base_s::float8 as retry_base_s, retry_cap_s::float8 as retry_cap_s, batch_max, batch_linger_ms,
    batch_by_tenant, body, max_running, rate_per_s::float8 as rate_per_s, complete_within_s
from bucketd.targets where target_id = any(%(targets)s::int[])
