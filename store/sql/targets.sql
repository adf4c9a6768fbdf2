-- name: put
-- Creates or changes a target; no row comes back if it is as asked already (and then nothing is written).
insert into bucketd.targets as t (name, url, headers, connect_timeout_s, timeout_s, max_attempts, retry_base_s, retry_cap_s,
    batch_max, batch_linger_ms, batch_by_tenant, body, max_running, rate_per_s, complete_within_s, dead_hook_url)
select n.* from (select %(name)s::text as name, %(url)s::text as url, %(headers)s::jsonb as headers,
        %(connect_timeout_s)s::real as connect_timeout_s, %(timeout_s)s::real as timeout_s, %(max_attempts)s::smallint as max_attempts,
        %(retry_base_s)s::real as retry_base_s, %(retry_cap_s)s::real as retry_cap_s, %(batch_max)s::integer as batch_max,
        %(batch_linger_ms)s::integer as batch_linger_ms, %(batch_by_tenant)s::boolean as batch_by_tenant, %(body)s::text as body,
        %(max_running)s::integer as max_running, %(rate_per_s)s::real as rate_per_s,
        %(complete_within_s)s::integer as complete_within_s, %(dead_hook_url)s::text as dead_hook_url) n
left join bucketd.targets o on o.name = n.name
where o.target_id is null
    or (o.url, o.headers, o.connect_timeout_s, o.timeout_s, o.max_attempts, o.retry_base_s, o.retry_cap_s, o.batch_max, o.batch_linger_ms,
        o.batch_by_tenant, o.body, o.max_running, o.rate_per_s, o.complete_within_s, o.dead_hook_url)
    is distinct from
    (n.url, n.headers, n.connect_timeout_s, n.timeout_s, n.max_attempts, n.retry_base_s, n.retry_cap_s, n.batch_max, n.batch_linger_ms,
        n.batch_by_tenant, n.body, n.max_running, n.rate_per_s, n.complete_within_s, n.dead_hook_url)
on conflict (name) do update set url = excluded.url, headers = excluded.headers, connect_timeout_s = excluded.connect_timeout_s,
    timeout_s = excluded.timeout_s, max_attempts = excluded.max_attempts, retry_base_s = excluded.retry_base_s,
    retry_cap_s = excluded.retry_cap_s, batch_max = excluded.batch_max, batch_linger_ms = excluded.batch_linger_ms,
    batch_by_tenant = excluded.batch_by_tenant, body = excluded.body, max_running = excluded.max_running,
    rate_per_s = excluded.rate_per_s, complete_within_s = excluded.complete_within_s, dead_hook_url = excluded.dead_hook_url
where (t.url, t.headers, t.connect_timeout_s, t.timeout_s, t.max_attempts, t.retry_base_s, t.retry_cap_s, t.batch_max, t.batch_linger_ms,
        t.batch_by_tenant, t.body, t.max_running, t.rate_per_s, t.complete_within_s, t.dead_hook_url)
    is distinct from
    (excluded.url, excluded.headers, excluded.connect_timeout_s, excluded.timeout_s, excluded.max_attempts, excluded.retry_base_s,
        excluded.retry_cap_s, excluded.batch_max, excluded.batch_linger_ms, excluded.batch_by_tenant, excluded.body,
        excluded.max_running, excluded.rate_per_s, excluded.complete_within_s, excluded.dead_hook_url)
returning revision

-- name: list
-- Targets by name after a name; one target if `name` is given.
select target_id, name, url, headers::text, connect_timeout_s, timeout_s, max_attempts, retry_base_s, retry_cap_s, batch_max,
    batch_linger_ms, batch_by_tenant, body, max_running, rate_per_s, complete_within_s, dead_hook_url,
    exists (select from bucketd.target_secrets s where s.target_id = t.target_id), revision, created_at, updated_at
from bucketd.targets t
where (%(name)s::text is null or name = %(name)s::text) and (%(after)s::text is null or name > %(after)s::text)
order by name limit %(limit)s::integer

-- name: ids
-- Ids of the targets of these names; names without a target are left out.
select name, target_id from bucketd.targets where name = any(%(names)s::text[])

-- name: usage
-- What keeps a target from being deleted: schedules, and runs that still wait for it.
select t.target_id, exists (select from bucketd.schedules s where s.target_id = t.target_id),
    exists (select from bucketd.runs r where r.wake_at is not null and r.target_id = t.target_id)
from bucketd.targets t where t.name = %(name)s::text

-- name: delete
-- Deletes a target and a hold on it.
with unheld as (delete from bucketd.holds where target_id = %(target_id)s::integer)
delete from bucketd.targets where target_id = %(target_id)s::integer
