-- name: dates
-- The dates of calendars; nobody changes these until the end of the transaction, so that no schedule is written with older ones.
select c.tenant, c.name, c.dates
from bucketd.calendars c join unnest(%(tenants)s::text[], %(names)s::text[]) k(tenant, name) on c.tenant = k.tenant and c.name = k.name
order by c.tenant, c.name for share of c

-- name: put
-- Creates or changes a calendar; no row comes back if it is so already.
insert into bucketd.calendars as c (tenant, name, dates) values (%(tenant)s::text, %(name)s::text, %(dates)s::date[])
on conflict (tenant, name) do update set dates = excluded.dates where c.dates <> excluded.dates
returning revision

-- name: list
-- Calendars by (tenant, name) after a pair, with the number of schedules that name each.
select c.tenant, c.name, c.dates, c.revision, c.created_at, c.updated_at,
    (select count(*) from bucketd.schedules s where s.tenant = c.tenant and s.calendars <> '{}' and c.name = any(s.calendars))
from bucketd.calendars c
where (%(after_tenant)s::text is null or (c.tenant, c.name) > (%(after_tenant)s::text, %(after_name)s::text))
    and (%(tenant)s::text is null or c.tenant = %(tenant)s::text) and (%(name)s::text is null or c.name = %(name)s::text)
order by c.tenant, c.name limit %(limit)s::integer

-- name: lock
-- Keeps writers of schedules that name the calendar out.
select name from bucketd.calendars where tenant = %(tenant)s::text and name = %(name)s::text for update

-- name: delete
-- Deletes a calendar.
delete from bucketd.calendars where tenant = %(tenant)s::text and name = %(name)s::text returning name

-- name: users
-- The next schedules that name a calendar, with what their spec and their end are made of.
select s.id, s.spec_id, s.phase, s.exclude_dates, s.calendars, s.starts_at, s.ends_at, s.max_runs
from bucketd.schedules s
where s.tenant = %(tenant)s::text and s.calendars <> '{}' and %(name)s::text = any(s.calendars)
    and (%(after)s::uuid is null or s.id > %(after)s::uuid)
order by s.id limit %(limit)s::integer for no key update of s

-- name: respec
-- Gives schedules their new specs: a timing edit, which holds from now.
update bucketd.schedules s set spec_id = u.spec_id, ends_at = u.ends_at
from unnest(%(ids)s::uuid[], %(specs)s::integer[], %(ends_at)s::timestamptz[]) u(id, spec_id, ends_at)
where s.id = u.id and s.spec_id <> u.spec_id
returning s.id
