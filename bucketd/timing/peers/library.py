"""croniter, the library that users migrate from: the real one, asked zone-aware, in this process."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from bucketd.timing.offsets import DAY_S
from bucketd.timing.peers.reading import Question, Reading, Refused
from bucketd.timing.zones import zone

if TYPE_CHECKING:
    from croniter import croniter as Croniter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# It fires once a minute at most; one more for each change of the clocks.
_MARGIN = 1_500


class Measured:
    """What croniter says; its times and dates are asked for in UTC, where no clock changes."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._whole = question.expr
        self._hashes = any(item.form == "hash" for _, item in question.plain())
        self._days = " ".join(("0", "0", *question.fields[2:]))
        self._first_day: int | None = None
        self._open(self._whole, 0, UTC)

    def times(self) -> Sequence[int] | None:
        if self._first_day is None:
            return None
        start_s = self._first_day * DAY_S
        return [at_s - start_s for at_s in self._walk(self._whole, start_s, start_s + DAY_S, UTC)]

    def dates(self, first_day: int, last_day: int) -> Sequence[int]:
        found = [at_s // DAY_S for at_s in self._walk(self._days, first_day * DAY_S, (last_day + 1) * DAY_S, UTC)]
        self._first_day = found[0] if found else None
        return found

    def fires(self, start_s: int, end_s: int) -> Sequence[int]:
        return list(self._walk(self._whole, start_s, end_s, zone(self._question.spec.tz)))

    def _walk(self, expr: str, start_s: int, end_s: int, info: tzinfo) -> Iterator[int]:
        from croniter import CroniterBadDateError

        asked = self._open(expr, start_s - 1, info)
        for _ in range((end_s - start_s) // 60 + _MARGIN):
            try:
                at_s = int((asked.get_next(datetime) - _EPOCH) // timedelta(seconds=1))
            except (CroniterBadDateError, OverflowError):
                return
            if at_s >= end_s:
                return
            yield at_s

    def _open(self, expr: str, start_s: int, info: tzinfo) -> "Croniter":
        from croniter import CroniterError, croniter

        start = (_EPOCH + timedelta(seconds=start_s)).astimezone(info)
        # A hash id is given for H alone: with one, croniter moves @daily and its like as well.
        seed = (self._question.seed or "").encode() if self._hashes else None
        try:
            return croniter(expr, start, hash_id=seed)
        except CroniterError as error:
            raise Refused(str(error)) from error


def croniter_reading(question: Question) -> Reading:
    """Raises `Refused` with croniter's own message."""
    return Measured(question)


@cache
def croniter_version() -> str:
    return version("croniter")
