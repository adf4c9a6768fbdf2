-- name: find
-- Ids of the rules that are stored already.
select s.rule, s.spec_id from unnest(%(rules)s::text[]) r(rule) join bucketd.specs s on md5(s.rule) = md5(r.rule) and s.rule = r.rule

-- name: intern
-- Stores rules; one that another transaction stored in the meantime is left alone. In one order, so that writers do not deadlock.
insert into bucketd.specs (kind, rule, every_s)
select n.kind, n.rule, n.every_s
from unnest(%(kinds)s::text[], %(rules)s::text[], %(every_s)s::integer[]) n(kind, rule, every_s)
order by n.rule
on conflict (md5(rule)) do nothing

-- name: rules
-- The rules of some specs, apart from their schedules: those are many, and with many excluded dates a rule is long.
select spec_id, rule from bucketd.specs where spec_id = any(%(ids)s::integer[])
