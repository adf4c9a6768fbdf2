"""From findings to the forecast that people read: names in place of numbers, the largest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

from bucketd.forecast.curve import curve, minutes_of
from bucketd.forecast.expectation import Expectation
from bucketd.forecast.peaks import Heaviest, K, largest
from bucketd.forecast.results import Forecast, How, Load, Peak, Share, Spread
from bucketd.forecast.spread import Mover
from bucketd.forecast.survey import Findings, Question, Shares, survey
from bucketd.store import forecast as store
from bucketd.store.operation import Operation

SHARES = 3


def forecast(question: Question) -> Operation[Forecast]:
    """Asks, and reports."""
    found = yield from survey(question)
    loads, more = _loads(found, question.top)
    if question.by == "target":
        names = yield from store.target_names([int(load.name) for load in loads])
        loads = [
            Load(names.get(int(load.name), load.name), load.fires, load.peak_at, load.peak_fires) for load in loads
        ]
    peaks = yield from _peaks(found)
    window, total = found.table.window, sum(found.minutes)
    return Forecast(
        now=datetime.fromtimestamp(found.now_s, UTC),
        start=_at(window.start_s),
        end=_at(window.end_s),
        minutes=tuple(found.minutes),
        fires=total,
        median=median(found.minutes),
        peaks=tuple(peaks),
        by=question.by,
        loads=tuple(loads),
        others=more,
        other_fires=max(0, total - sum(load.fires for load in loads)),
        spreads=tuple(_spreads(found, question.jitter_s)),
        unreadable_specs=found.unreadable,
    )


def _loads(found: Findings, top: int) -> tuple[list[Load], int]:
    """The largest by fires, and how many others there are."""
    window = found.table.window
    curves = {name: curve(groups, found.table.patterns, 60, window.minutes) for name, groups in found.parts.items()}
    fires = {name: sum(minutes) for name, minutes in curves.items()}
    loads = []
    for name, count in largest(((name, count) for name, count in fires.items() if count), top):
        place = _highest(curves[name])
        loads.append(Load(name, count, _at(window.start_s + place * 60), curves[name][place]))
    idle = sum(not count for count in fires.values())
    return loads, max(0, len(found.dims) - idle - len(loads))


def _peaks(found: Findings) -> Operation[list[Peak]]:
    spec_ids = {spec_id for share in found.shares for spec_id, _ in share.specs.top(SHARES)}
    target_ids = {target_id for share in found.shares for target_id, _ in share.targets.top(SHARES)}
    typed = yield from store.expressions(sorted(spec_ids))
    targets = yield from store.target_names(sorted(target_ids))
    middle = median(found.minutes)
    peaks = []
    for place, share in zip(found.places, found.shares, strict=True):
        fires, at_s = found.minutes[place], found.table.window.start_s + place * 60
        second = _busiest(share)
        peaks.append(
            Peak(
                at=_at(at_s),
                fires=fires,
                times_median=fires / middle if middle else None,
                second=_at(at_s + second),
                second_fires=share.seconds[second],
                specs=_shares(
                    share.specs, lambda spec_id: _words(*typed[spec_id]) if spec_id in typed else str(spec_id)
                ),
                tenants=_shares(share.tenants, str),
                targets=_shares(share.targets, lambda target_id: targets.get(target_id, str(target_id))),
            )
        )
    return peaks


def _spreads(found: Findings, jitter_s: int) -> list[Spread]:
    if found.region is None:
        return []
    region = found.region.window
    before = curve(found.counts, found.region.patterns, 1, region.minutes * 60)
    ways: Mover | Expectation
    if found.members is not None:
        ways = Mover(region, before, list(found.members.values()), found.specs, found.now_s)
    else:
        peak_s = found.table.window.start_s + found.places[0] * 60
        peak, now_s = (peak_s - region.start_s) // 60, found.now_s - region.start_s
        ways = Expectation(before, found.counts, found.region.patterns, peak, now_s)

    def spread(how: How, seconds: Sequence[int], moved: int) -> Spread:
        minutes = minutes_of(seconds)
        place = _highest(minutes)
        return Spread(
            how=how,
            jitter_s=jitter_s if how == "jitter" else None,
            exact=found.members is not None,
            schedules=moved,
            at=_at(region.start_s + place * 60),
            fires=minutes[place],
            second_fires=max(seconds),
            start=_at(region.start_s),
            minutes=tuple(minutes),
        )

    return [spread("H", *ways.hashed()), spread("jitter", *ways.jittered(jitter_s))]


def _shares(counts: Heaviest[K], named: Callable[[K], str]) -> tuple[Share, ...]:
    return tuple(Share(named(name), fires) for name, fires in counts.top(SHARES))


def _words(rule: str, expression: str) -> str:
    """A spec as a person would name it. `expression`: how one of its authors typed it, if that is known."""
    parts = json.loads(rule)
    if parts["kind"] == "at":
        return "one-shots"
    if parts["kind"] == "every":
        return f"every {expression or str(parts['every_s']) + 's'}"
    zone = "" if parts["tz"] == "UTC" else f" {parts['tz']}"
    return f"{expression or 'a cron'}{zone}"


def _busiest(share: Shares) -> int:
    return max(range(60), key=lambda second: (share.seconds[second], -second))


def _highest(counts: Sequence[int]) -> int:
    return max(range(len(counts)), key=lambda place: (counts[place], -place))


def _at(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
