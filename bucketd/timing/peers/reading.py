"""How a scheduler reads an expression: when it would fire, in three views that a comparison can afford to look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bucketd.timing.cron import fields_of
from bucketd.timing.fields import FIELDS, Item, read_field
from bucketd.timing.occurrences import LONGEST_MADE_UP_GAP_S, fires_between
from bucketd.timing.spec import CronSpec


class Refused(ValueError):
    """The scheduler does not accept the expression, or has no expression of that meaning; the message says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """An expression that bucketd accepts, with what it means here. `fields` are lower case, macros resolved."""

    expr: str
    seed: str | None
    spec: CronSpec
    fields: tuple[str, ...]
    items: tuple[tuple[Item, ...], ...]

    @property
    def is_macro(self) -> bool:
        return self.expr.strip(" \t").startswith("@")

    def plain(self) -> Iterator[tuple[int, Item]]:
        """Every item with the number of its field."""
        for number, items in enumerate(self.items):
            for item in items:
                yield number, item


class Reading(Protocol):
    """One scheduler's reading. Days are numbers (1970-01-01 is 0), instants UTC epoch seconds."""

    def times(self) -> Sequence[int] | None:
        """Seconds of an ordinary day that matches, ascending; None if no date of the near future matches."""

    def dates(self, first_day: int, last_day: int) -> Sequence[int]:
        """Matching dates in first_day..last_day, ascending."""

    def fires(self, start_s: int, end_s: int) -> Sequence[int]:
        """Starts with start_s <= t < end_s, ascending; an instant stands there as often as the job is started at it."""


@dataclass(frozen=True, slots=True)
class Model:
    """A reading that our engine can compute. `each_missed`: what a jump leaves out is made up one by one, not once."""

    spec: CronSpec
    each_missed: bool = False

    def times(self) -> Sequence[int] | None:
        return self.spec.walls.times

    def dates(self, first_day: int, last_day: int) -> Sequence[int]:
        found = []
        day = self.spec.walls.calendar.next(first_day)
        while day is not None and day <= last_day:
            found.append(day)
            day = self.spec.walls.calendar.next(day + 1)
        return found

    def fires(self, start_s: int, end_s: int) -> Sequence[int]:
        fires = fires_between(self.spec, start_s, end_s)
        if not self.each_missed:
            return fires
        return [at_s for at_s in fires for _ in range(self._starts(at_s))]

    def _starts(self, at_s: int) -> int:
        stretch = self.spec.offsets.at(at_s)
        jump_s = stretch.offset_s - stretch.before_s
        if stretch.lo_s != at_s or self.spec.gap != "run_after" or not 0 < jump_s <= LONGEST_MADE_UP_GAP_S:
            return 1
        shown_s = at_s + stretch.offset_s
        return len(self.spec.walls.between(at_s + stretch.before_s, shown_s + 1))


@dataclass(frozen=True, slots=True)
class Silent:
    """An expression that is accepted and never fires."""

    def times(self) -> Sequence[int] | None:
        return None

    def dates(self, first_day: int, last_day: int) -> Sequence[int]:
        return ()

    def fires(self, start_s: int, end_s: int) -> Sequence[int]:
        return ()


def question_of(expr: str, spec: CronSpec, seed: str | None) -> Question:
    """`spec` is what `expr` means here; raises `CronError` as `parse_cron` did not."""
    fields = tuple(fields_of(expr))
    items = tuple(tuple(read_field(field, text)) for field, text in zip(FIELDS, fields, strict=True))
    return Question(expr, seed, spec, fields, items)
