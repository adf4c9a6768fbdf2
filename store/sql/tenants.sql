-- name: put
-- Gives a tenant its cap; no row comes back, and nothing is written, if it has it already.
insert into bucketd.tenants as t (tenant, max_running)
select n.* from (select %(name)s::text as tenant, %(max_running)s::integer as max_running) n
left join bucketd.tenants o on o.tenant = n.tenant
where o.max_running is distinct from n.max_running
on conflict (tenant) do update set max_running = excluded.max_running where t.max_running <> excluded.max_running
returning xmax = 0

-- name: list
-- Tenants with a cap by name after a name; one if `name` is given.
select tenant, max_running, created_at, updated_at from bucketd.tenants
where (%(name)s::text is null or tenant = %(name)s::text) and (%(after)s::text is null or tenant > %(after)s::text)
order by tenant limit %(limit)s::integer

-- name: delete
-- Takes the cap away; no row comes back if there was none.
delete from bucketd.tenants where tenant = %(name)s::text returning tenant
