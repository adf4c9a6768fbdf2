-- name: whole
-- All schedules of whole specs, by owned partition: packed place of the spec in the question and head of a fire. One index-only
-- scan a spec, in the order of the index. A row a partition, not a row a spec and partition: most specs have few schedules.
-- The partitions are a filter by bit mask, not an index condition: 128 probes a spec instead of one scan cost 30 times as much.
select s.partition_id, string_agg(int4send(u.n::int) || uuid_send(s.id) || int4send(s.timing_version) || int2send(s.tenant_hash), ''::bytea)
from unnest(%(specs)s::int[]) with ordinality u(spec_id, n)
join bucketd.schedules s on s.spec_id = u.spec_id and not s.paused
where get_bit(%(mask)s::bytea, s.partition_id) = 1 and s.jitter_offset_s = 0
    and (s.ends_at is null or s.ends_at > to_timestamp(%(living)s::bigint))
group by s.partition_id;

-- name: ranges
-- The schedules of a spec whose due phase lies in [lo, hi): one-shots, intervals, crons with jitter. Packed place, due phase, offset
-- of the jitter, head of a fire.
select s.partition_id, string_agg(int4send(u.n::int) || int8send(s.due_phase) || int4send(s.jitter_offset_s)
    || uuid_send(s.id) || int4send(s.timing_version) || int2send(s.tenant_hash), ''::bytea)
from unnest(%(specs)s::int[], %(los)s::bigint[], %(his)s::bigint[]) with ordinality u(spec_id, lo, hi, n)
join bucketd.schedules s on s.spec_id = u.spec_id and s.due_phase >= u.lo and s.due_phase < u.hi and not s.paused
where get_bit(%(mask)s::bytea, s.partition_id) = 1 and (s.ends_at is null or s.ends_at > to_timestamp(%(living)s::bigint))
group by s.partition_id;
