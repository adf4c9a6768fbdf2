-- name: ids
-- Which specs are marked as failed, from the partial index.
select spec_id from bucketd.specs where error is not null order by spec_id

-- name: enter
-- Marks specs that a node could not compute. In one order, so that nodes that fail alike do not deadlock; nothing that follows
-- `specs` is told.
update bucketd.specs s set error = u.error, failed_at = bucketd.bucketd_now()
from (
    select s.spec_id, u.error from unnest(%(specs)s::int[], %(errors)s::text[]) u(spec_id, error)
    join bucketd.specs s on s.spec_id = u.spec_id where s.error is distinct from u.error
    order by s.spec_id for no key update of s
) u
where s.spec_id = u.spec_id

-- name: release
-- Takes the marks off specs that can be computed again.
update bucketd.specs s set error = null, failed_at = null
from (
    select spec_id from bucketd.specs where spec_id = any(%(specs)s::int[]) and error is not null
    order by spec_id for no key update
) u
where s.spec_id = u.spec_id

-- name: failed
-- The specs that failed last, and how many schedules each keeps from firing, counted up to a bound.
select s.spec_id, s.kind, s.rule, s.error, s.failed_at, (
    select count(*) from (select from bucketd.schedules c where c.spec_id = s.spec_id limit %(bound)s::int) c)
from bucketd.specs s where s.error is not null
order by s.failed_at desc, s.spec_id limit %(most)s::int
