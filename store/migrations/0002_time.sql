-- What people say about time beside the schedules themselves: holiday calendars, the zones' data, and who changed what.

-- Named dates of a tenant. Its schedules name calendars; the dates are part of their specs, so a change here is a timing edit there.
create table bucketd.calendars (
    tenant text not null check (length(tenant) between 1 and 255),
    name text not null check (length(name) between 1 and 255),
    dates date[] not null check (cardinality(dates) <= 5000),
    revision integer not null default 1,
    created_at timestamptz not null default bucketd.bucketd_now(),
    updated_at timestamptz not null default bucketd.bucketd_now(),
    primary key (tenant, name)
);

create function bucketd.calendars_write() returns trigger language plpgsql as $$
begin
    new.revision := old.revision + 1;
    new.updated_at := bucketd.bucketd_now();
    return new;
end $$;
create trigger calendars_write before update on bucketd.calendars
    for each row when (old.* is distinct from new.*) execute function bucketd.calendars_write();

-- The data that the specs' zones were computed with (TZif files), so that a node with newer data can tell what it moves.
create table bucketd.zones (
    name text primary key,
    tzif bytea not null
);
-- The version of those data, and who may compute: an older node refuses. Null until the first node has come.
alter table bucketd.cluster
    add column tzdata_version text,
    add column tzdata_at timestamptz,         -- when that version came
    add column tzdata_from text,              -- the one before it, while schedules are being moved from it; null: it is done
    add column tzdata_begun timestamptz;      -- from here on nobody plans by the older one; null: not sure yet
-- The zone that a rule names, by its text: a rule that cannot be read must not be refused here.
alter table bucketd.specs add column tz text generated always as (substring(rule from '"tz":"([^"]*)"')) stored;
create index specs_tz on bucketd.specs (tz, spec_id) where tz is not null;
-- What schedules_plan is for those that are not paused.
create index schedules_paused on bucketd.schedules (spec_id, partition_id) where paused;

-- Who acts: what the client was told (set_config of bucketd.actor, in the transaction), else the database user.
create function bucketd.actor() returns text language sql stable as
$$ select coalesce(nullif(current_setting('bucketd.actor', true), ''), session_user::text) $$;

-- Who changed what, and from what to what. Payloads and headers may hold secrets: that they changed is told, not how. Written by
-- triggers, so that raw SQL and COPY are in it too; only retention deletes from it.
create table bucketd.audit (
    audit_id bigint generated always as identity primary key,
    at timestamptz not null default bucketd.bucketd_now(),
    actor text not null default bucketd.actor(),
    kind text not null check (kind in ('schedule', 'target', 'tenant', 'hold', 'calendar', 'backfill', 'run')),
    action text not null,                     -- create, edit, pause, resume, delete, ..
    tenant text,                              -- null: of nobody in particular
    name text not null,                       -- of the object; of a run: its schedule
    object_id text not null,
    revision integer,
    changes jsonb                             -- {"column": [old, new]}; null in place of what is not told
);
create index audit_at on bucketd.audit (at);
create index audit_object on bucketd.audit (tenant, name, audit_id);

-- Columns that differ, without those that every write moves. For small rows without JSON text.
create function bucketd.changes(old jsonb, new jsonb) returns jsonb language sql immutable as $$
    select jsonb_object_agg(n.key, case when n.key = 'headers' then null else jsonb_build_array(o.value, n.value) end)
    from jsonb_each(new) n join jsonb_each(old) o on o.key = n.key
    where n.value is distinct from o.value and n.key not in ('revision', 'updated_at', 'probe_at')
$$;

create function bucketd.schedules_audit() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into bucketd.audit (kind, action, tenant, name, object_id, revision)
        select 'schedule', 'create', tenant, name, id, revision from fresh;
    else
        insert into bucketd.audit (kind, action, tenant, name, object_id, revision)
        select 'schedule', 'delete', tenant, name, id, revision from gone;
    end if;
    return null;
end $$;
create trigger schedules_audit_insert after insert on bucketd.schedules referencing new table as fresh
    for each statement execute function bucketd.schedules_audit();
create trigger schedules_audit_delete after delete on bucketd.schedules referencing old table as gone
    for each statement execute function bucketd.schedules_audit();

-- Edits a row at a time: the old and the new rows of a statement would have to be joined, by a plan that a session keeps from its
-- first edit of a single one (10,000 then took minutes), and kept for every floor that settling raises, which is no edit.
-- Column by column: a fifth of the time of comparing two objects, and a payload may be JSON that jsonb refuses (a NUL in a text).
create function bucketd.schedules_audit_edit() returns trigger language plpgsql as $$
declare
    told jsonb := jsonb_strip_nulls(jsonb_build_object(
        'tenant', case when new.tenant is distinct from old.tenant then jsonb_build_array(old.tenant, new.tenant) end,
        'name', case when new.name is distinct from old.name then jsonb_build_array(old.name, new.name) end,
        'spec_id', case when new.spec_id is distinct from old.spec_id then jsonb_build_array(old.spec_id, new.spec_id) end,
        'phase', case when new.phase is distinct from old.phase then jsonb_build_array(old.phase, new.phase) end,
        'jitter_s', case when new.jitter_s is distinct from old.jitter_s then jsonb_build_array(old.jitter_s, new.jitter_s) end,
        'target_id', case when new.target_id is distinct from old.target_id
            then jsonb_build_array(old.target_id, new.target_id) end,
        'expression', case when new.expression is distinct from old.expression
            then jsonb_build_array(old.expression, new.expression) end,
        'timeout_s', case when new.timeout_s is distinct from old.timeout_s
            then jsonb_build_array(old.timeout_s, new.timeout_s) end,
        'max_attempts', case when new.max_attempts is distinct from old.max_attempts
            then jsonb_build_array(old.max_attempts, new.max_attempts) end,
        'retry_base_s', case when new.retry_base_s is distinct from old.retry_base_s
            then jsonb_build_array(old.retry_base_s, new.retry_base_s) end,
        'retry_cap_s', case when new.retry_cap_s is distinct from old.retry_cap_s
            then jsonb_build_array(old.retry_cap_s, new.retry_cap_s) end,
        'overlap', case when new.overlap is distinct from old.overlap then jsonb_build_array(old.overlap, new.overlap) end,
        'misfire', case when new.misfire is distinct from old.misfire then jsonb_build_array(old.misfire, new.misfire) end,
        'misfire_threshold_s', case when new.misfire_threshold_s is distinct from old.misfire_threshold_s
            then jsonb_build_array(old.misfire_threshold_s, new.misfire_threshold_s) end,
        'deadline_s', case when new.deadline_s is distinct from old.deadline_s
            then jsonb_build_array(old.deadline_s, new.deadline_s) end,
        'catch_up_window_s', case when new.catch_up_window_s is distinct from old.catch_up_window_s
            then jsonb_build_array(old.catch_up_window_s, new.catch_up_window_s) end,
        'catch_up_cap', case when new.catch_up_cap is distinct from old.catch_up_cap
            then jsonb_build_array(old.catch_up_cap, new.catch_up_cap) end,
        'labels', case when new.labels is distinct from old.labels then jsonb_build_array(old.labels, new.labels) end,
        'paused', case when new.paused is distinct from old.paused then jsonb_build_array(old.paused, new.paused) end,
        'pause_reason', case when new.pause_reason is distinct from old.pause_reason
            then jsonb_build_array(old.pause_reason, new.pause_reason) end,
        'paused_until', case when new.paused_until is distinct from old.paused_until
            then jsonb_build_array(old.paused_until, new.paused_until) end,
        'starts_at', case when new.starts_at is distinct from old.starts_at
            then jsonb_build_array(old.starts_at, new.starts_at) end,
        'ends_at', case when new.ends_at is distinct from old.ends_at then jsonb_build_array(old.ends_at, new.ends_at) end,
        'max_runs', case when new.max_runs is distinct from old.max_runs then jsonb_build_array(old.max_runs, new.max_runs) end,
        'exclude_dates', case when new.exclude_dates is distinct from old.exclude_dates
            then jsonb_build_array(old.exclude_dates, new.exclude_dates) end,
        'calendars', case when new.calendars is distinct from old.calendars
            then jsonb_build_array(old.calendars, new.calendars) end,
        'retimes', case when new.retimes is distinct from old.retimes then jsonb_build_array(old.retimes, new.retimes) end));
begin
    if new.payload::text <> old.payload::text then
        told := told || '{"payload": null}';
    end if;
    insert into bucketd.audit (at, kind, action, tenant, name, object_id, revision, changes)
    values (new.updated_at, 'schedule',
        case when new.paused and not old.paused then 'pause' when old.paused and not new.paused then 'resume'
            when new.retimes <> old.retimes then 'retime' else 'edit' end,
        new.tenant, new.name, new.id, new.revision, told);
    return null;
end $$;
create trigger schedules_audit_update after update on bucketd.schedules
    for each row when (new.revision <> old.revision) execute function bucketd.schedules_audit_edit();

-- Targets, tenants, holds, calendars and users' backfills are few: a row at a time. Arguments: kind, column of the id. What has no
-- name of its own (a hold, a backfill) goes by that of its target, if it is about one.
create function bucketd.row_audit() returns trigger language plpgsql as $$
declare
    old_row jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
    new_row jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
    subject jsonb := coalesce(new_row, old_row);
    different jsonb := case when tg_op = 'UPDATE' then bucketd.changes(old_row, new_row) end;
begin
    if tg_op = 'UPDATE' and different is null then
        return null;
    end if;
    insert into bucketd.audit (kind, action, tenant, name, object_id, revision, changes)
    values (tg_argv[0], case when tg_op = 'INSERT' then 'create' when tg_op = 'DELETE' then 'delete'
            when tg_argv[0] = 'backfill' then 'cancel' else 'edit' end,
        subject ->> 'tenant', coalesce(subject ->> 'name', case tg_argv[0] when 'tenant' then subject ->> 'tenant' end, (
            select t.name from bucketd.targets t where t.target_id = (subject ->> 'target_id')::integer), subject ->> 'scope', ''),
        coalesce(subject ->> tg_argv[1], ''), (subject ->> 'revision')::integer, different);
    return null;
end $$;
create trigger targets_audit after insert or update or delete on bucketd.targets
    for each row execute function bucketd.row_audit('target', 'target_id');
create trigger holds_audit after insert or update or delete on bucketd.holds
    for each row execute function bucketd.row_audit('hold', 'hold_id');
create trigger calendars_audit after insert or update or delete on bucketd.calendars
    for each row execute function bucketd.row_audit('calendar', 'name');
-- The expansion moves its cursor in the row; of a backfill the request and its end by a user are told.
create trigger backfills_audit after insert on bucketd.backfills
    for each row when (new.kind = 'user') execute function bucketd.row_audit('backfill', 'backfill_id');
create trigger backfills_audit_cancel after update on bucketd.backfills
    for each row when (new.cancelled and not old.cancelled) execute function bucketd.row_audit('backfill', 'backfill_id');
