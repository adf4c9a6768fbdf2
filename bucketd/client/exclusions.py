"""Which days a schedule leaves out: its own dates and those of the calendars that it names, as the spec has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from bucketd.client.inputs import Draft
from bucketd.errors import InvalidInput
from bucketd.store import calendars
from bucketd.store.operation import Operation

_EPOCH = date(1970, 1, 1).toordinal()
# Every fire of the schedule has to step over those in its way, and every node keeps them with the rule.
MOST_DAYS = 5_000


class Excluded:
    """The dates of some calendars by (tenant, name), and what comes of them: made once for all schedules that leave the same out."""

    def __init__(self, dates: Mapping[tuple[str, str], Iterable[date]]) -> None:
        self._dates = dates
        self._made: dict[tuple[str, tuple[date, ...], tuple[str, ...]], tuple[int, ...]] = {}

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._dates

    def days(self, tenant: str, own: Iterable[date], names: Iterable[str]) -> tuple[int, ...]:
        """Distinct day numbers (1970-01-01 is 0), ascending. Raises InvalidInput: too many."""
        key = tenant, tuple(own), tuple(names)
        made = self._made.get(key)
        if made is None:
            found = set(key[1]).union(*(self._dates.get((tenant, name), ()) for name in key[2]))
            if len(found) > MOST_DAYS:
                raise InvalidInput(
                    f"expected exclude and calendars to be at most {MOST_DAYS:,} dates together, got {len(found):,};"
                    " take out what is long gone",
                    field="calendars",
                )
            made = self._made[key] = tuple(sorted(day.toordinal() - _EPOCH for day in found))
        return made


def days(drafts: Iterable[Draft]) -> Operation[Excluded]:
    """The dates of all calendars that the drafts name; they stay as they are until the end of the transaction."""
    keys = {(draft.tenant, name) for draft in drafts for name in draft.calendars}
    return Excluded((yield from calendars.dates(sorted(keys))) if keys else {})


def check(draft: Draft, known: Excluded) -> None:
    """Raises InvalidInput if the draft names a calendar that its tenant does not have, or leaves too many dates out."""
    for name in draft.calendars:
        if (draft.tenant, name) not in known:
            raise InvalidInput(
                f"expected the name of a calendar of tenant {draft.tenant!r}, got {name!r}, which does not exist;"
                " create it with calendars.put first",
                field="calendars",
            )
    of(draft, known)


def of(draft: Draft, known: Excluded) -> tuple[int, ...]:
    """The draft's excluded days as numbers, ascending. Raises InvalidInput: too many."""
    if not draft.exclude and not draft.calendars:
        return ()
    return known.days(draft.tenant, draft.exclude, draft.calendars)
