"""What lies ahead: fires a minute of the coming hours, who makes the peaks, and what would flatten them.

Read `survey` and `report` for the way; `timetable`, `curve`, `peaks`, `spread` and `expectation` are pure. Postgres counts schedules
by what their fires have in common, so the work here grows with specs and minutes, not with schedules.
"""
