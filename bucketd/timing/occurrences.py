"""When a spec fires: the next, the previous, or all nominal instants of a window, in UTC epoch seconds.

Pure integer arithmetic: no clock, no host zone. A schedule's fires are the set of instants that its wall-clock minutes
map to, so instants that coincide are one fire. `phase` means: every = offset in seconds, the instants are k * every_s +
phase; at = the instant itself; cron ignores it. Fires exist only while UTC and wall time lie in the years 1 to 9999.
"""

from bucketd.timing.offsets import DAY_S, FIRST_S, LAST_S, Stretch
from bucketd.timing.spec import AtSpec, CronSpec, EverySpec, Spec

# A longer jump is a correction of the calendar, not daylight saving: nothing is made up for it (cronie's cap).
LONGEST_MADE_UP_GAP_S = 3 * 3_600
# From 2100 on every zone follows its last rule, which depends, as dates do, only on a year's first weekday and length.
# Any 57 years hold 28 without a century in between, hence all 14 kinds of year; one kind is away for 40 years at most.
# So a rule that finds nothing for 80 years (all of its times are missing ones, and skipped) finds nothing ever.
_LAST_RULES_FROM_S = 4_102_444_800
_LONG_ENOUGH_S = 80 * 366 * DAY_S


def next_fire(spec: Spec, after_s: int, phase: int = 0) -> int | None:
    """The smallest instant > `after_s`, or None if the calendar ends before one."""
    if not isinstance(spec, CronSpec):
        return _next_plain(spec, after_s, phase)
    if not FIRST_S <= after_s < LAST_S:
        if after_s >= LAST_S:
            return None
        after_s = FIRST_S - 1
    # Fast path: final if both `after_s` and the result lie where wall times exist once (about 361 days of a year).
    at = spec.offsets.at
    stretch = at(after_s)
    if stretch[3] <= after_s < stretch[4]:
        offset_s = stretch[2]
        wall_s = spec.walls.next(after_s + offset_s + 1)
        if wall_s is None:
            return None
        found_s = wall_s - offset_s
        if found_s < stretch[4]:
            return found_s if found_s <= LAST_S else None
        stretch = at(found_s)
        found_s = wall_s - stretch[2]
        if stretch[3] <= found_s < stretch[4]:
            return found_s if found_s <= LAST_S else None
    return _next_across_changes(spec, after_s)


def previous_fire(spec: Spec, before_s: int, phase: int = 0) -> int | None:
    """The largest instant < `before_s`, or None if there is none back to year 1. As bounded as `next_fire`."""
    if not isinstance(spec, CronSpec):
        return _previous_plain(spec, before_s, phase)
    last_s = min(before_s - 1, LAST_S)
    if last_s < FIRST_S:
        return None
    at = spec.offsets.at
    stretch = at(last_s)
    if stretch[3] <= last_s < stretch[4]:
        offset_s = stretch[2]
        wall_s = spec.walls.previous(last_s + offset_s + 1)
        if wall_s is None:
            return None
        found_s = wall_s - offset_s
        if found_s >= stretch[3]:
            return found_s if found_s >= FIRST_S else None
        stretch = at(found_s)
        found_s = wall_s - stretch[2]
        if stretch[3] <= found_s < stretch[4]:
            return found_s if found_s >= FIRST_S else None
    return _previous_across_changes(spec, last_s)


def fires_between(spec: Spec, start_s: int, end_s: int, phase: int = 0, limit: int | None = None) -> list[int]:
    """All instants with start_s <= t < end_s, ascending; at most the first `limit` of them if given."""
    if limit is not None and limit <= 0:
        return []
    if not isinstance(spec, CronSpec):
        return _plain_between(spec, start_s, end_s, phase, limit)
    found: list[int] = []
    now_s = max(start_s, FIRST_S)
    end_s = min(end_s, LAST_S + 1)
    while now_s < end_s and (limit is None or len(found) < limit):
        fire_s = next_fire(spec, now_s - 1)
        if fire_s is None or fire_s >= end_s:
            break
        found.append(fire_s)
        now_s = fire_s + 1
        stretch = spec.offsets.at(now_s)
        if stretch.safe_lo_s <= now_s < stretch.safe_hi_s:
            # A whole stretch of ordinary wall time at once; a day at a time if a limit may stop it.
            stop_s = min(end_s, stretch.safe_hi_s, now_s + DAY_S if limit is not None else end_s)
            offset_s = stretch.offset_s
            found += [wall_s - offset_s for wall_s in spec.walls.between(now_s + offset_s, stop_s + offset_s)]
            now_s = stop_s
    return found if limit is None else found[:limit]


def nth_fire(spec: Spec, after_s: int, n: int, phase: int = 0) -> int | None:
    """The n-th instant > `after_s` (n from 1), or None if there are fewer. Time grows with n, but for intervals."""
    if isinstance(spec, EverySpec) and spec.excluded is None:
        first_s = _next_plain(spec, after_s, phase)
        last_s = None if first_s is None else first_s + (n - 1) * spec.every_s
        return last_s if last_s is not None and last_s <= LAST_S else None
    found = fires_between(spec, after_s + 1, LAST_S + 1, phase, n)
    return found[-1] if len(found) == n else None


def count_between(spec: Spec, start_s: int, end_s: int, phase: int = 0) -> int:
    """How many instants lie in [start_s, end_s): by arithmetic for intervals, by the day for crons."""
    if isinstance(spec, EverySpec) and spec.excluded is None:
        return max(0, (end_s - 1 - phase) // spec.every_s - (start_s - 1 - phase) // spec.every_s)
    return len(fires_between(spec, start_s, end_s, phase))


def _next_across_changes(spec: CronSpec, after_s: int) -> int | None:
    """Stretch by stretch, jumping over those that no matching wall time can touch."""
    from_s = after_s + 1
    excluded_s = (
        spec.exclude[-1] * DAY_S if spec.exclude else after_s
    )  # dates left out tell nothing of those behind them
    give_up_s = min(max(after_s, excluded_s, _LAST_RULES_FROM_S) + _LONG_ENOUGH_S, LAST_S)
    while from_s <= give_up_s:
        stretch = spec.offsets.at(from_s)
        found_s = _first_in(spec, stretch, from_s)
        if found_s is not None:
            return found_s if found_s <= LAST_S else None
        # Wall times that later stretches show or skip begin here; an offset is always less than a day.
        wall_s = spec.walls.next(stretch.hi_s + min(stretch.offset_s, stretch.after_s))
        if wall_s is None:
            return None
        from_s = max(stretch.hi_s, wall_s - DAY_S)
    return None


def _previous_across_changes(spec: CronSpec, last_s: int) -> int | None:
    to_s = last_s
    give_up_s = min(to_s, spec.exclude[0] * DAY_S if spec.exclude else to_s) - _LONG_ENOUGH_S
    while to_s >= FIRST_S:
        if _LAST_RULES_FROM_S < to_s < give_up_s:
            to_s = _LAST_RULES_FROM_S
        stretch = spec.offsets.at(to_s)
        found_s = _last_in(spec, stretch, to_s)
        if found_s is not None:
            return found_s if found_s >= FIRST_S else None
        wall_s = spec.walls.previous(stretch.lo_s + max(stretch.offset_s, stretch.before_s))
        if wall_s is None:
            return None
        to_s = min(stretch.lo_s - 1, wall_s + DAY_S)
    return None


def _first_in(spec: CronSpec, stretch: Stretch, from_s: int) -> int | None:
    """The first fire >= `from_s` of a stretch that holds `from_s`."""
    start_s, end_s = _once_or_chosen(spec, stretch)
    found = []
    wall_s = spec.walls.next(max(start_s, from_s) + stretch.offset_s)
    if wall_s is not None and wall_s < end_s + stretch.offset_s:
        found.append(wall_s - stretch.offset_s)
    if _shifts(spec, stretch):
        wall_s = spec.walls.next(from_s + stretch.before_s)
        if wall_s is not None and wall_s < stretch.lo_s + stretch.offset_s:
            found.append(wall_s - stretch.before_s)
    elif from_s == stretch.lo_s and _runs_after(spec, stretch):
        found.append(from_s)
    return min(found, default=None)


def _last_in(spec: CronSpec, stretch: Stretch, to_s: int) -> int | None:
    """The last fire <= `to_s` of a stretch that holds `to_s`."""
    start_s, end_s = _once_or_chosen(spec, stretch)
    found = []
    wall_s = spec.walls.previous(min(end_s, to_s + 1) + stretch.offset_s)
    if wall_s is not None and wall_s >= start_s + stretch.offset_s:
        found.append(wall_s - stretch.offset_s)
    if _shifts(spec, stretch):
        wall_s = spec.walls.previous(min(stretch.lo_s + stretch.offset_s, to_s + 1 + stretch.before_s))
        if wall_s is not None and wall_s >= stretch.lo_s + stretch.before_s:
            found.append(wall_s - stretch.before_s)
    elif _runs_after(spec, stretch):
        found.append(stretch.lo_s)
    return max(found, default=None)


def _once_or_chosen(spec: CronSpec, stretch: Stretch) -> tuple[int, int]:
    """The part of a stretch whose wall times count: without the passes of a fold that the policy leaves out."""
    start_s, end_s = stretch.lo_s, stretch.hi_s
    if spec.fold == "first":
        start_s += max(0, stretch.before_s - stretch.offset_s)
    elif spec.fold == "second":
        end_s -= max(0, stretch.offset_s - stretch.after_s)
    return start_s, end_s


def _shifts(spec: CronSpec, stretch: Stretch) -> bool:
    return spec.gap == "shift" and stretch.before_s < stretch.offset_s


def _runs_after(spec: CronSpec, stretch: Stretch) -> bool:
    """True if the jump that begins the stretch is itself a fire, made up for wall times that it left out."""
    jump_s = stretch.offset_s - stretch.before_s
    if spec.gap != "run_after" or not 0 < jump_s <= LONGEST_MADE_UP_GAP_S:
        return False
    wall_s = spec.walls.next(stretch.lo_s + stretch.before_s)
    return wall_s is not None and wall_s < stretch.lo_s + stretch.offset_s


def _next_plain(spec: EverySpec | AtSpec, after_s: int, phase: int) -> int | None:
    after_s = max(after_s, FIRST_S - 1)
    if isinstance(spec, AtSpec):
        return phase if after_s < phase <= LAST_S else None
    found_s = after_s + spec.every_s - (after_s - phase) % spec.every_s
    if spec.excluded is not None:
        while found_s <= LAST_S and spec.excluded.holds(found_s):
            before_s = spec.excluded.later(found_s) - 1
            found_s = before_s + spec.every_s - (before_s - phase) % spec.every_s
    return found_s if found_s <= LAST_S else None


def _previous_plain(spec: EverySpec | AtSpec, before_s: int, phase: int) -> int | None:
    last_s = min(before_s - 1, LAST_S)
    if isinstance(spec, AtSpec):
        return phase if FIRST_S <= phase <= last_s else None
    found_s = last_s - (last_s - phase) % spec.every_s
    if spec.excluded is not None:
        while found_s >= FIRST_S and spec.excluded.holds(found_s):
            last_s = spec.excluded.earlier(found_s)
            found_s = last_s - (last_s - phase) % spec.every_s
    return found_s if found_s >= FIRST_S else None


def _plain_between(spec: EverySpec | AtSpec, start_s: int, end_s: int, phase: int, limit: int | None) -> list[int]:
    first_s = _next_plain(spec, start_s - 1, phase)
    if first_s is None:
        return []
    if isinstance(spec, EverySpec) and spec.excluded is not None:
        found: list[int] = []
        while first_s is not None and first_s < end_s and (limit is None or len(found) < limit):
            found.append(first_s)
            first_s = _next_plain(spec, first_s, phase)
        return found
    step_s = spec.every_s if isinstance(spec, EverySpec) else LAST_S - FIRST_S + 1
    return list(range(first_s, min(end_s, LAST_S + 1), step_s)[:limit])
