-- name: create
-- Asks for every occurrence of some schedules in a range; scheduler nodes make the runs.
insert into bucketd.backfills (kind, tenant, name, target_id, labels, from_at, until_at)
values ('user', %(tenant)s::text, %(name)s::text, %(target_id)s::integer, %(labels)s::jsonb, %(from_at)s::timestamptz, %(until_at)s::timestamptz)
returning backfill_id

-- name: list
-- Users' backfills, newest first, before an id; or the one of this id.
select b.backfill_id, b.tenant, b.name, t.name, b.labels::text, b.from_at, b.until_at, b.runs_created, b.created_at, b.finished_at, b.cancelled,
    b.error
from bucketd.backfills b left join bucketd.targets t on t.target_id = b.target_id
where b.kind = 'user' and (%(id)s::bigint is null or b.backfill_id = %(id)s::bigint)
    and (%(before)s::bigint is null or b.backfill_id < %(before)s::bigint)
    and (not %(open)s::boolean or b.finished_at is null)
order by b.backfill_id desc limit %(limit)s::integer

-- name: cancel
-- Ends an open backfill; runs that it made already go on.
update bucketd.backfills set cancelled = true, finished_at = bucketd.bucketd_now()
where backfill_id = %(id)s::bigint and kind = 'user' and finished_at is null
returning backfill_id

-- name: unfinished
-- Runs of backfills in a range, of the chosen schedules, that have not ended. Through the partial index of waiting rows and the
-- instants of claims: a look costs what is open, not what the range holds.
with r as (
    select schedule_id, tenant, target_id from bucketd.runs
    where wake_at is not null and origin = 'backfill'
        and scheduled_at >= %(from_at)s::timestamptz and scheduled_at < %(until_at)s::timestamptz
    union all
    select schedule_id, tenant, target_id from bucketd.runs
    where claim is not null and wake_at is null and origin = 'backfill'
        and scheduled_at = any(array(select distinct unnest(instants) from bucketd.claims))
        and scheduled_at >= %(from_at)s::timestamptz and scheduled_at < %(until_at)s::timestamptz)
select count(*) from r join bucketd.schedules s on s.id = r.schedule_id
where (%(tenant)s::text is null or r.tenant = %(tenant)s::text)
    and (%(name)s::text is null or s.name = %(name)s::text)
    and (%(target)s::text is null
        or r.target_id = (select target_id from bucketd.targets t where t.name = %(target)s::text))
    and s.labels @> %(labels)s::jsonb
