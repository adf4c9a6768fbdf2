-- name: list
-- Changes, newest first, below a cursor.
select audit_id, at, actor, kind, action, tenant, name, object_id, revision, changes
from bucketd.audit
where (%(before)s::bigint is null or audit_id < %(before)s::bigint)
    and (%(tenant)s::text is null or tenant = %(tenant)s::text) and (%(name)s::text is null or name = %(name)s::text)
    and (%(kind)s::text is null or kind = %(kind)s::text) and (%(actor)s::text is null or actor = %(actor)s::text)
    and (%(from_at)s::timestamptz is null or at >= %(from_at)s::timestamptz)
    and (%(to_at)s::timestamptz is null or at < %(to_at)s::timestamptz)
order by audit_id desc limit %(limit)s::integer

-- name: note
-- A deed of a user that changes no definition: a run that was started, cancelled or skipped by hand.
insert into bucketd.audit (kind, action, tenant, name, object_id)
values (%(kind)s::text, %(action)s::text, %(tenant)s::text, %(name)s::text, %(object_id)s::text)

-- name: act_as
-- Who acts in this transaction, for the triggers that write the audit log.
select set_config('bucketd.actor', %(actor)s::text, true)

-- name: forget
-- Deletes what is older than retention, a bounded number at a time.
delete from bucketd.audit where audit_id in (
    select audit_id from bucketd.audit where at < bucketd.bucketd_now() - %(days)s::int * interval '1 day' order by at limit %(most)s::int)
