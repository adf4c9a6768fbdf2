-- What a target's requests are signed with, sealed by the key ring of the settings: nobody reads a secret out of the database alone.
-- A table of its own, for a row of targets is shown, exported and audited. At most two are valid at once, by its shape.
create table bucketd.target_secrets (
    target_id integer primary key references bucketd.targets on delete cascade,
    sealed text not null,
    old_sealed text,                          -- the one before it, for receivers that have not changed yet ..
    old_until timestamptz,                    -- .. and until when it is valid
    rotated_at timestamptz not null default bucketd.bucketd_now(),
    check ((old_sealed is null) = (old_until is null))
);

-- A secret that came, changed or went raises the revision of its target, by which runners know that theirs is stale, and stands in
-- the audit log without its value. Sealing it anew is no change: that leaves rotated_at alone.
create function bucketd.target_secrets_write() returns trigger language plpgsql as $$
declare
    of_target integer := case when tg_op = 'DELETE' then old.target_id else new.target_id end;
begin
    with touched as (
        update bucketd.targets set revision = revision + 1 where target_id = of_target returning target_id, name, revision
    )
    insert into bucketd.audit (kind, action, name, object_id, revision)
    select 'target', case when tg_op = 'DELETE' then 'drop_secret' else 'rotate_secret' end, name, target_id, revision from touched;
    return null;
end $$;
create trigger target_secrets_write after insert or delete or update of rotated_at on bucketd.target_secrets
    for each row execute function bucketd.target_secrets_write();
