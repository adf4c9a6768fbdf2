"""What changes of the clocks do to a listing of fires, in words: which wall time is missing or comes twice, and what that means.

Only changes that a matching wall time touches are looked at, so a listing that spans centuries stays cheap.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bucketd.timing.occurrences import LONGEST_MADE_UP_GAP_S
from bucketd.timing.offsets import DAY_S, Stretch
from bucketd.timing.spec import CronSpec, Spec
from bucketd.timing.words import joined

_EPOCH = datetime(1970, 1, 1)
_LISTED = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a listing, UTC epoch seconds. `fires` is False where wall times are skipped: at the jump over them."""

    at_s: int
    fires: bool
    note: str = ""


def annotated(spec: Spec, after_s: int, fires: Sequence[int]) -> list[Line]:
    """`fires` (ascending, all > `after_s`) with notes, and between them a line for each jump whose wall times are skipped."""
    if not isinstance(spec, CronSpec) or not fires:
        return [Line(at_s, True) for at_s in fires]
    notes: dict[int, list[str]] = defaultdict(list)
    lines = []
    for jump in _jumps(spec, after_s + 1, fires[-1]):
        missing = spec.walls.between(jump.lo_s + jump.before_s, jump.lo_s + jump.offset_s)
        if spec.gap == "shift":
            for wall_s in missing:
                notes[wall_s - jump.before_s].append(_moved([wall_s], wall_s - jump.before_s + jump.offset_s))
        elif spec.gap == "run_after" and jump.offset_s - jump.before_s <= LONGEST_MADE_UP_GAP_S:
            notes[jump.lo_s].append(_moved(missing, jump.lo_s + jump.offset_s))
        else:
            lines.append(Line(jump.lo_s, False, f"skipped: {_absent(missing)}"))
    for at_s in fires:
        twice = _twice(spec, at_s)
        lines.append(Line(at_s, True, "; ".join(notes[at_s] + ([twice] if twice else []))))
    return sorted(lines, key=lambda line: (line.at_s, line.fires))


def _jumps(spec: CronSpec, from_s: int, to_s: int) -> Iterator[Stretch]:
    """Stretches that begin in from_s..to_s with a jump over matching wall times, ascending."""
    while from_s <= to_s:
        stretch = spec.offsets.at(from_s)
        if from_s <= stretch.lo_s <= to_s or stretch.lo_s == from_s:
            due_s, shown_s = stretch.lo_s + stretch.before_s, stretch.lo_s + stretch.offset_s
            wall_s = spec.walls.next(due_s) if due_s < shown_s else None
            if wall_s is not None and wall_s < shown_s:
                yield stretch
        # The next matching wall time that this stretch does not show; an offset is always less than a day.
        wall_s = spec.walls.next(stretch.hi_s + min(stretch.offset_s, stretch.after_s))
        if wall_s is None:
            return
        from_s = max(stretch.hi_s, wall_s - DAY_S)


def _twice(spec: CronSpec, at_s: int) -> str:
    """A word on a fire whose wall time the clocks show twice; empty for any other."""
    stretch = spec.offsets.at(at_s)
    wall_s = at_s + stretch.offset_s
    if at_s < stretch.lo_s + stretch.before_s - stretch.offset_s:
        which = "second"
    elif at_s >= stretch.hi_s + stretch.after_s - stretch.offset_s:
        which = "first"
    else:
        return ""
    what = f"this is the {which}" if spec.fold == "both" else f"runs at the {which}"
    return f"{clock(wall_s)} occurs twice on {day(wall_s)}, {what}"


def _moved(missing: Sequence[int], shown_s: int) -> str:
    to = clock(shown_s) if day(shown_s) == day(missing[0]) else f"{clock(shown_s)} on {day(shown_s)}"
    return f"{_absent(missing)}, {'runs' if len(missing) == 1 else 'run once'} at {to}"


def _absent(missing: Sequence[int]) -> str:
    first, last = missing[0], missing[-1]
    if day(first) != day(last):
        return f"{len(missing)} times from {clock(first)} on {day(first)} to {clock(last)} on {day(last)} do not exist"
    if len(missing) <= _LISTED:
        times = joined([clock(wall_s) for wall_s in missing])
    else:
        times = f"{len(missing)} times from {clock(first)} to {clock(last)}"
    return f"{times} {'does' if len(missing) == 1 else 'do'} not exist on {day(first)}"


def clock(wall_s: int) -> str:
    """`02:30` of a wall time in seconds since 1970-01-01 00:00 of the wall clock."""
    return (_EPOCH + timedelta(seconds=wall_s)).strftime("%H:%M")


def day(wall_s: int) -> str:
    """`2026-03-08` of the same."""
    return (_EPOCH + timedelta(seconds=wall_s)).date().isoformat()
