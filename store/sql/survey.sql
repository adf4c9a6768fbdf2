-- name: read
-- The figures of the cluster that monitoring shows, four times a minute: what grows is counted along an index and up to a bound.
with clock as materialized (
    select bucketd.bucketd_now() as now
)
select
    (select extract(epoch from k.now - min(p.settled_through))::float8 from bucketd.partitions p) as oldest_unsettled_s,
    (select count(*) from bucketd.partitions where owner is null) as partitions_unowned,
    (select count(*) from bucketd.runners where dead_at is null
        and heartbeat_at > k.now - %(dead_after_s)s::float8 * interval '1 second') as runners_alive,
    (select count(*) from (select from bucketd.runs where not background and wake_at < k.now - interval '60 s'
        limit %(bound)s::int) r) as runs_overdue,
    (select count(*) from (select from bucketd.runs where wake_at = 'infinity' limit %(bound)s::int) r) as runs_held,
    (select count(*) from bucketd.backfills where finished_at is null) as backfills_open,
    (select count(*) from (select from bucketd.dead_letters limit %(bound)s::int) l) as dead_letters,
    (select count(*) from bucketd.specs where error is not null) as specs_failed,
    (select count(*) from bucketd.holds where kind = 'user' and scope = 'all') as holds_of_all,
    (select count(*) from bucketd.holds where kind = 'user' and scope = 'tenant') as holds_of_tenants,
    (select count(*) from bucketd.holds where kind = 'user' and scope = 'target') as holds_of_targets,
    (select count(*) from bucketd.holds where kind = 'breaker') as breakers_open
from clock k
