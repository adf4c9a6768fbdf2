-- What execution needs beside the runs themselves: overlap slots, and tenants that are not like all others.

-- Which run of a schedule goes on. Free when that run is final: nobody has to write here when a run ends. A row exists only of
-- schedules whose runs can meet: their occurrences lie close together, or one of their runs left the happy path.
create table bucketd.slots (
    schedule_id uuid primary key,
    scheduled_at timestamptz not null,        -- of the run that took it last
    taken_from timestamptz                    -- of the run that it was taken from: cancel_running cancels that one
) with (fillfactor = 70);

-- Tenants with a cap. All others need no row.
create table bucketd.tenants (
    tenant text primary key check (length(tenant) between 1 and 255),
    max_running integer check (max_running between 1 and 1000000),  -- runs of it at once, in the whole cluster
    created_at timestamptz not null default bucketd.bucketd_now(),
    updated_at timestamptz not null default bucketd.bucketd_now()
);
