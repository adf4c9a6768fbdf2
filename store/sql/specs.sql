-- name: find
-- Ids of the rules that are stored already.
select rule, spec_id from bucketd.specs where rule = any(%(rules)s::text[])

-- name: intern
-- Stores rules; one that another transaction stored in the meantime is left alone. In one order, so that writers do not deadlock.
insert into bucketd.specs (kind, rule, every_s)
select n.kind, n.rule, n.every_s
from unnest(%(kinds)s::text[], %(rules)s::text[], %(every_s)s::integer[]) n(kind, rule, every_s)
order by n.rule
on conflict (rule) do nothing
