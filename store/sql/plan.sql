-- name: whole
-- Packed heads (id + timing version) of all schedules of whole specs, by spec and owned partition: one index-only scan a spec.
-- The partitions are a filter by bit mask, not an index condition: 128 probes a spec instead of one scan cost 30 times as much.
select u.n::int, s.partition_id, string_agg(uuid_send(s.id) || int4send(s.timing_version), ''::bytea)
from unnest(%(specs)s::int[]) with ordinality u(spec_id, n)
join bucketd.schedules s on s.spec_id = u.spec_id and not s.paused
where get_bit(%(mask)s::bytea, s.partition_id) = 1 and s.jitter_offset_s = 0
group by u.n, s.partition_id;

-- name: ranges
-- Packed heads of the schedules of a spec whose due phase lies in [lo, hi): one-shots, intervals, crons with jitter.
select u.n::int, s.partition_id, s.due_phase, s.jitter_offset_s,
    string_agg(uuid_send(s.id) || int4send(s.timing_version), ''::bytea)
from unnest(%(specs)s::int[], %(los)s::bigint[], %(his)s::bigint[]) with ordinality u(spec_id, lo, hi, n)
cross join unnest(%(partitions)s::int[]) p(partition_id)
join bucketd.schedules s on s.spec_id = u.spec_id and s.partition_id = p.partition_id
    and s.due_phase >= u.lo and s.due_phase < u.hi and not s.paused
group by u.n, s.partition_id, s.due_phase, s.jitter_offset_s;
