-- name: take
-- A new epoch for each partition: above what Postgres and the fence in Redis have seen. The lease in Redis decided who takes it;
-- this only numbers it. Answers too whether what Redis has of it was planned in this very history, and which that is. A cursor of another server (a restored dump) may
-- lie beyond all that this one has given out: then it would hide every later write.
update bucketd.partitions p set owner = %(owner)s::uuid,
    feed_snapshot = case when pg_snapshot_xmax(p.feed_snapshot) > pg_snapshot_xmax(pg_current_snapshot())
        then pg_current_snapshot() else p.feed_snapshot end,
    epoch = greatest(p.epoch, u.fence_epoch) + 1  -- guard: epoch-above-fence
from (select bucketd.history() as history offset 0) h, (
    select p.partition_id, u.fence_epoch, p.history as last_history
    from unnest(%(partitions)s::int[], %(fence_epochs)s::bigint[]) u(partition_id, fence_epoch)
    join bucketd.partitions p using (partition_id)
    order by p.partition_id for update of p
) u
where p.partition_id = u.partition_id
returning p.partition_id, p.epoch, extract(epoch from p.settled_through)::bigint, p.feed_snapshot::text, u.last_history = h.history, h.history;

-- name: trust
-- What Redis has of these partitions is of this history now.
update bucketd.partitions set history = %(history)s where partition_id = any(%(partitions)s::int[]);

-- name: disown
-- The owner leaves: only a name for people goes, the epoch stays.
update bucketd.partitions set owner = null where partition_id = any(%(partitions)s::int[]) and owner = %(owner)s::uuid;

-- name: watermarks
-- Where every partition stands, without taking it.
select partition_id, extract(epoch from settled_through)::bigint, feed_snapshot::text from bucketd.partitions;

-- name: clock
-- The cluster's clock, epoch seconds, the release of tzdata it computes with, the history, and what all living runners read: one look
-- at all, every second or two. A dead runner reads nothing more, whether the reaper knows it or not.
select extract(epoch from bucketd.bucketd_now())::float8, tzdata_version, bucketd.history(),
    (select min(message_version) from bucketd.runners where dead_at is null) from bucketd.cluster;

-- name: standings
-- Epoch, owner by name and settled lag of every partition, for people.
select partition_id, epoch, owner, extract(epoch from bucketd.bucketd_now() - settled_through)::float8 from bucketd.partitions
order by partition_id;
