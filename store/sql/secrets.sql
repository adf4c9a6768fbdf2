-- name: lock
-- The target of this name and what seals its secret now, locked for a change of it.
select t.target_id, s.sealed
from bucketd.targets t left join bucketd.target_secrets s on s.target_id = t.target_id
where t.name = %(name)s::text
for no key update of t

-- name: rotate
-- Gives a target a new secret; the one it had stays valid for a while, the one before that ends now.
insert into bucketd.target_secrets as s (target_id, sealed) values (%(target_id)s::integer, %(sealed)s::text)
on conflict (target_id) do update set sealed = excluded.sealed, rotated_at = excluded.rotated_at,
    old_sealed = case when %(keep_old_s)s::integer > 0 then s.sealed end,
    old_until = case when %(keep_old_s)s::integer > 0
        then excluded.rotated_at + %(keep_old_s)s::integer * interval '1 second' end

-- name: drop
-- Takes both secrets from a target.
delete from bucketd.target_secrets where target_id = %(target_id)s::integer

-- name: of_target
-- What seals the secrets of a target, newest first, without one that has ended. Until: epoch seconds, null for the newest.
select s.sealed, null::float8 from bucketd.target_secrets s where s.target_id = %(target_id)s::integer
union all
select s.old_sealed, extract(epoch from s.old_until)::float8
from bucketd.target_secrets s where s.target_id = %(target_id)s::integer and s.old_until > bucketd.bucketd_now()

-- name: page
-- Some sealed secrets, by target after a target, locked so that no rotation comes between reading and sealing anew.
select s.target_id, (select t.name from bucketd.targets t where t.target_id = s.target_id), s.sealed, s.old_sealed
from bucketd.target_secrets s where s.target_id > %(after)s::integer
order by s.target_id limit %(limit)s::integer
for update of s

-- name: reseal
-- The same secrets under another key of the ring: no change that a runner or the audit log has to hear of.
update bucketd.target_secrets s set sealed = n.sealed, old_sealed = n.old_sealed
from unnest(%(targets)s::integer[], %(sealed)s::text[], %(old_sealed)s::text[]) as n (target_id, sealed, old_sealed)
where s.target_id = n.target_id
