"""The first differences between our fires and those of other schedulers, within two years and a bounded time.

Two readings can differ in the times of a day, in the dates, or where the clocks change. So only those days are walked that
lie in one set of dates and not in the other, a few days if the times differ, and the hours around each change of offset.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bucketd.timing.offsets import DAY_S, FIRST_S, LAST_S, ZoneOffsets
from bucketd.timing.peers.dialects import cronie, eventbridge, kubernetes
from bucketd.timing.peers.library import croniter_reading
from bucketd.timing.peers.reading import Model, Question, Reading, Refused, Silent, question_of
from bucketd.timing.spec import CronSpec

SPAN_S = 2 * 366 * DAY_S
MOST_DIFFERENCES = 3
_AROUND_CHANGE_S = 3 * 3_600


@dataclass(frozen=True, slots=True)
class Peer:
    """A scheduler; `gap`, `fold` and `days` say in words where its rules are its own."""

    name: str
    basis: str  # measured or modelled
    read: Callable[[Question], Reading]
    gap: str
    fold: str
    days: str = ""


PEERS = (
    Peer("croniter", "measured", croniter_reading, "it runs at another instant", "it runs in both passes"),
    Peer(
        "Kubernetes", "modelled", kubernetes, "it skips what does not exist", "it runs in both passes",
        "`*/n` in a day field is no star there, so either field is enough",
    ),
    Peer("EventBridge", "modelled", eventbridge, "it skips what does not exist", "it runs once"),
    Peer(
        "cronie", "modelled", cronie, "whether it is made up goes by a star that begins the minute or hour field",
        "whether it runs twice goes by a star that begins the minute or hour field",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """An instant (UTC epoch seconds) at which the job is started `ours` times here and `theirs` times there."""

    at_s: int
    offset_s: int
    ours: int
    theirs: int
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`verdict` is same, differs, rejects or never (accepted, and never fires); `summary` says it in words."""

    peer: str
    basis: str
    verdict: str
    summary: str
    differences: tuple[Difference, ...] = ()


def compare(
    expr: str, spec: CronSpec, seed: str | None, start_s: int, peers: Sequence[Peer] = PEERS
) -> list[Comparison]:
    """With each of `peers`, from `start_s` on; `spec` is what `expr` means here (with `seed`, if it has an H)."""
    question = question_of(expr, spec, seed)
    start_s = min(max(start_s, FIRST_S + 2 * DAY_S), LAST_S - 2 * SPAN_S)
    return [_against(peer, question, start_s) for peer in peers]


def _against(peer: Peer, question: Question, start_s: int) -> Comparison:
    try:
        theirs = peer.read(question)
        if isinstance(theirs, Silent):
            return Comparison(peer.name, peer.basis, "never", "accepts it, and it never runs")
        found = tuple(_differences(peer, Model(question.spec), theirs, start_s, start_s + SPAN_S))
    except Refused as refusal:
        return Comparison(peer.name, peer.basis, "rejects", f"rejects it: {refusal}")
    if not found:
        return Comparison(peer.name, peer.basis, "same", "same for two years")
    first = "differs, first at" if len(found) == MOST_DIFFERENCES else "differs, only at"
    return Comparison(peer.name, peer.basis, "differs", first, found)


def _differences(peer: Peer, ours: Model, theirs: Reading, start_s: int, end_s: int) -> Iterator[Difference]:
    if theirs == ours:
        return  # the same sets and the same policies: nothing can differ
    offsets = ours.spec.offsets
    first_day, last_day = start_s // DAY_S, end_s // DAY_S
    our_dates, their_dates = ours.dates(first_day, last_day), theirs.dates(first_day, last_day)
    our_times, their_times = ours.times() or (), theirs.times()
    odd_dates = sorted(set(our_dates) ^ set(their_dates))
    odd_times = set() if their_times is None else set(our_times) ^ set(their_times)
    days = odd_dates if not odd_times else sorted({*our_dates, *their_dates})
    # One more, since the first day may be over in part.
    windows = [_window(offsets, day) for day in days[: MOST_DIFFERENCES + 1]]
    windows += _around_changes(offsets, start_s, end_s)
    left = MOST_DIFFERENCES
    for low_s, high_s in _merged(windows, start_s, end_s):
        here, there = Counter(ours.fires(low_s, high_s)), Counter(theirs.fires(low_s, high_s))
        for at_s in sorted(at_s for at_s in here | there if here[at_s] != there[at_s]):
            offset_s = offsets.at(at_s).offset_s
            day, second = divmod(at_s + offset_s, DAY_S)
            if _holds(odd_dates, day):
                why = (
                    peer.days
                    or f"its dates are not ours: {len(their_dates):,} in these two years, here {len(our_dates):,}"
                )
            elif second in odd_times:
                why = f"its times of a day are not ours: {len(their_times or ()):,} of them, here {len(our_times):,}"
            else:
                why = _clocks(peer, offsets, at_s, there[at_s])
            yield Difference(at_s, offset_s, here[at_s], there[at_s], why)
            left -= 1
            if not left:
                return


def _clocks(peer: Peer, offsets: ZoneOffsets, at_s: int, theirs: int) -> str:
    near = offsets.at(at_s)
    forward = near.before_s < near.offset_s and at_s - near.lo_s <= near.offset_s - near.before_s
    if not forward:
        return f"repeated wall time: {peer.fold}"
    return "missing wall time: " + (peer.gap if theirs < 2 else "it starts each missed minute, one by one")


def _window(offsets: ZoneOffsets, day: int) -> tuple[int, int]:
    start_s = day * DAY_S - offsets.at(day * DAY_S).offset_s
    return start_s, start_s + DAY_S


def _around_changes(offsets: ZoneOffsets, start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    at_s = start_s
    while at_s < end_s:
        stretch = offsets.at(at_s)
        around_s = abs(stretch.offset_s - stretch.before_s)
        if around_s and stretch.lo_s >= start_s:
            yield stretch.lo_s - around_s - _AROUND_CHANGE_S, stretch.lo_s + around_s + _AROUND_CHANGE_S
        at_s = stretch.hi_s


def _merged(windows: Sequence[tuple[int, int]], start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """The windows within start_s < t < end_s, ascending, none twice."""
    done_s = start_s + 1
    for low_s, high_s in sorted(windows):
        low_s, high_s = max(low_s, done_s), min(high_s, end_s)
        if low_s < high_s:
            yield low_s, high_s
            done_s = high_s


def _holds(ordered: Sequence[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value
