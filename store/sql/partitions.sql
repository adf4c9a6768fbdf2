-- name: take
-- A new epoch for each partition: above what Postgres and the fence in Redis have seen. The lease in Redis decided who takes it;
-- this only numbers it.
update bucketd.partitions p set epoch = greatest(p.epoch, u.fence_epoch) + 1, owner = %(owner)s::uuid
from (
    select p.partition_id, u.fence_epoch
    from unnest(%(partitions)s::int[], %(fence_epochs)s::bigint[]) u(partition_id, fence_epoch)
    join bucketd.partitions p using (partition_id)
    order by p.partition_id for update of p
) u
where p.partition_id = u.partition_id
returning p.partition_id, p.epoch, extract(epoch from p.settled_through)::bigint, p.feed_snapshot::text;

-- name: disown
-- The owner leaves: only a name for people goes, the epoch stays.
update bucketd.partitions set owner = null where partition_id = any(%(partitions)s::int[]) and owner = %(owner)s::uuid;

-- name: watermarks
-- Where every partition stands, without taking it.
select partition_id, extract(epoch from settled_through)::bigint, feed_snapshot::text from bucketd.partitions;

-- name: clock
-- The cluster's clock, epoch seconds, and the release of tzdata it computes with: one look at both, every second or two.
select extract(epoch from bucketd.bucketd_now())::float8, tzdata_version from bucketd.cluster;
