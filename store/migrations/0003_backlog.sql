-- What is held, in the order of schedules: a release goes through it in short steps, and run_once must see the newest of a schedule.
-- Costs nothing while nothing is held.
create index runs_held on bucketd.runs (schedule_id, scheduled_at) where wake_at = 'infinity';
