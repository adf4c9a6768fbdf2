-- What execution needs beside the runs themselves: overlap slots, and tenants that are not like all others.

-- Which run of a schedule goes on. Free when that run is final: nobody writes here when a run ends. A row exists only of
-- schedules whose runs can meet: their occurrences lie close together, or one of their runs left the happy path.
-- Whoever wants the slot inserts (schedule_id, asked_at, rule) on conflict do update of asked_at and rule; the trigger answers. So
-- the decision stands once, under the lock of the row, and by what is committed by then, not by what the statement saw first.
create table bucketd.slots (
    schedule_id uuid primary key,
    asked_at timestamptz not null,            -- the run that asked last ..
    rule text not null check (rule in ('skip', 'queue_one', 'queue_all', 'cancel_running', 'wait')),  -- .. and what it does if it is taken
    scheduled_at timestamptz not null,        -- the run that has it; equal to asked_at: it was given
    taken_from timestamptz,                   -- the run that was cancelled for it. Asking: one that goes on without a slot
    queued_at timestamptz,                    -- the run that was queued last; equal to asked_at: it is to wait
    queued integer not null default 0         -- about how many wait
) with (fillfactor = 70);

create function bucketd.slots_ask() returns trigger language plpgsql as $$
declare
    holder timestamptz := case tg_op when 'INSERT' then new.taken_from else old.scheduled_at end;
    goes_on boolean := false;
    queue_stands boolean := false;
begin
    if tg_op = 'UPDATE' then
        new.queued_at := old.queued_at;
        new.queued := old.queued;
    end if;
    if holder <> new.asked_at then
        goes_on := coalesce((select r.status not in ('succeeded', 'skipped', 'cancelled', 'dead') from bucketd.runs r
            where r.scheduled_at = holder and r.schedule_id = new.schedule_id), false);
    end if;
    if new.rule in ('queue_one', 'queue_all') and new.queued_at <> new.asked_at then
        queue_stands := exists (select from bucketd.runs r
            where r.scheduled_at = new.queued_at and r.schedule_id = new.schedule_id and r.status = 'waiting');
    end if;
    new.taken_from := null;
    if goes_on and new.rule = 'cancel_running' and new.asked_at > holder then  -- an older one that comes late cancels nothing
        update bucketd.runs r set status = 'cancelled', claim = null, wake_at = null, finished_at = bucketd.bucketd_now(),
            reason = 'overlap'
        where (r.scheduled_at, r.schedule_id) in (
            select o.scheduled_at, o.schedule_id from bucketd.runs o
            where o.scheduled_at = holder and o.schedule_id = new.schedule_id
                and o.status not in ('succeeded', 'skipped', 'cancelled', 'dead') for update skip locked);
        if not found then
            -- Its row is being written: it ends, or wakes. Whoever writes may want this slot next, so nobody waits for the other.
            new.scheduled_at := holder;
            new.queued_at := new.asked_at;
            return new;
        end if;
        new.taken_from := holder;
        goes_on := false;
    end if;
    if not (goes_on or queue_stands) then
        new.scheduled_at := new.asked_at;
        if new.rule = 'wait' then
            new.queued := greatest(0, new.queued - 1);
        end if;
        return new;
    end if;
    new.scheduled_at := holder;
    if not queue_stands then
        new.queued := 0;
    end if;
    if new.rule = 'wait' or (new.rule = 'queue_one' and not queue_stands) or (new.rule = 'queue_all' and new.queued < 1000) then
        new.queued := new.queued + (new.rule <> 'wait')::int;
        new.queued_at := case when new.rule = 'wait' then new.queued_at else new.asked_at end;
    end if;
    return new;
end $$;
-- A run that leaves the happy path (a retry, a 202, a lost runner) is not over: whoever comes next has to find it at its slot, however
-- far away that seemed when it was started. Where another one that goes on has the slot, it stays there.
create function bucketd.keep_slots(ids uuid[], ats timestamptz[]) returns bigint language sql volatile as $$
    with kept as (
        insert into bucketd.slots as o (schedule_id, asked_at, rule, scheduled_at)
        select distinct on (u.id) u.id, u.at, 'wait', u.at
        from unnest(ids, ats) u(id, at) join bucketd.schedules s on s.id = u.id and s.overlap <> 'allow'
        order by u.id, u.at
        on conflict (schedule_id) do update set asked_at = excluded.asked_at, rule = excluded.rule
        where o.scheduled_at <> excluded.asked_at
        returning 1
    )
    select count(*) from kept
$$;

create trigger slots_ask before insert or update on bucketd.slots for each row execute function bucketd.slots_ask();

-- Tenants with a cap. All others need no row.
create table bucketd.tenants (
    tenant text primary key check (length(tenant) between 1 and 255),
    max_running integer not null check (max_running between 1 and 1000000),  -- runs of it at once, in the whole cluster
    created_at timestamptz not null default bucketd.bucketd_now(),
    updated_at timestamptz not null default bucketd.bucketd_now()
);

create function bucketd.tenants_write() returns trigger language plpgsql as $$
begin
    new.updated_at := bucketd.bucketd_now();
    return new;
end $$;
create trigger tenants_write before update on bucketd.tenants
    for each row when (old.* is distinct from new.*) execute function bucketd.tenants_write();
create trigger tenants_audit after insert or update or delete on bucketd.tenants
    for each row execute function bucketd.row_audit('tenant', 'tenant');
