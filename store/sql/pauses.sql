-- name: lift
-- Resumes what is paused until an instant that is near. The trigger raises the floor to that instant, so nothing fires before it, and
-- the planner sees the schedule in time.
with near as (
    select id, set_config('bucketd.actor', 'bucketd: the pause has ended', true) from bucketd.schedules
    where paused and paused_until is not null and paused_until <= bucketd.bucketd_now() + %(ahead_s)s::float8 * interval '1 second'
    order by tenant, name limit %(most)s::int for no key update skip locked
)
update bucketd.schedules s set paused = false from near where s.id = near.id
