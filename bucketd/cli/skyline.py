"""A forecast, drawn: a bar for each stretch of time, the peaks, what would flatten the highest, and who is how large."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from bucketd.cli.output import clean

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from bucketd.forecast.results import Forecast, Peak, Share, Spread

MOST_LINES = 48
STEPS = (1, 2, 5, 10, 15, 30, 60)  # minutes a line
LEAST_BAR, MOST_BAR = 10, 100


def drawn(forecast: Forecast, width: int) -> Group:
    """The whole picture, `width` characters wide."""
    from rich.console import Group
    from rich.text import Text

    hours = f"{len(forecast.minutes) // 60} h from {forecast.start:%Y-%m-%dT%H:%MZ}"
    if not forecast.fires:
        return Group(Text(f"nothing falls due in the {hours}"), *_unreadable(forecast))
    head = Text(f"{forecast.fires:,} fires in the {hours}; {forecast.median:,.0f} in the median minute")
    parts: list[RenderableType] = [head, *_unreadable(forecast), Text(), _bars(forecast, width), Text()]
    parts += [_peaks(forecast), *_spreads(forecast), _loads(forecast)]
    return Group(*parts)


def _unreadable(forecast: Forecast) -> list[Text]:
    from rich.text import Text

    count = forecast.unreadable_specs
    return [Text(f"not counted: schedules of {count:,} rules that cannot be computed", style="yellow")] if count else []


def _bars(forecast: Forecast, width: int) -> Table:
    """A line for some minutes: the bar is as long as the highest of them, its full part as the average."""
    from rich.table import Table
    from rich.text import Text

    minutes = forecast.minutes
    step = next(step for step in STEPS if len(minutes) // step <= MOST_LINES)
    marks = {int((peak.at - forecast.start).total_seconds()) // 60: peak for peak in forecast.peaks}
    top = max(minutes)
    digits = len(f"{top:,}")
    room = max(LEAST_BAR, min(MOST_BAR, width - 40 - 2 * digits))
    table = Table.grid(padding=(0, 1))
    table.add_row(*(Text(name, style="dim") for name in ("due", "per minute", "average", "highest", "")))
    for column in table.columns[2:4]:
        column.justify = "right"
    lead = -(int(forecast.start.timestamp()) // 60) % step  # lines begin at round times
    for first, last in pairwise(dict.fromkeys((0, *range(lead, len(minutes), step), len(minutes)))):
        part = minutes[first:last]
        full, whole = _cells(sum(part) / len(part), top, room), _cells(max(part), top, room)
        mark = next((marks[minute] for minute in range(first, last) if minute in marks), None)
        line = Text("█" * full, style="cyan").append("░" * (whole - full), style="red" if mark else "cyan")
        at = forecast.start + timedelta(minutes=first)
        note = f"<- {mark.at:%H:%M}{_times(mark)}" if mark else ""
        table.add_row(f"{at:%H:%M}", line, f"{sum(part) / len(part):,.0f}", f"{max(part):,}", Text(note, style="red"))
    return table


def _cells(fires: float, top: int, room: int) -> int:
    """Length of a bar: any fire at all shows."""
    return max(1, round(fires / top * room)) if fires else 0


def _times(peak: Peak) -> str:
    return "" if peak.times_median is None else f" {peak.times_median:,.1f} x median"


def _peaks(forecast: Forecast) -> Table:
    """A few lines a peak; who makes it is not said again while it is the same."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    before: tuple[str, ...] = ()
    for peak in forecast.peaks:
        makers = tuple(_shares(shares) for shares in (peak.specs, peak.tenants, peak.targets))
        of_median = "" if peak.times_median is None else f", {peak.times_median:,.1f} x the median"
        head = f"{peak.fires:,} fires/min{of_median}; {peak.second_fires:,} in one second, {peak.second:%H:%M:%S}"
        same = "; made by the same" if makers == before else ""
        table.add_row(Text(f"peak {peak.at:%m-%d %H:%M}", style="bold"), Text(head + same))
        if not same:
            for name, text in zip(("specs", "tenants", "targets"), makers, strict=True):
                table.add_row("", Text(f"{name}: {text}", style="dim"))
        before = makers
    return table


def _shares(shares: tuple[Share, ...]) -> str:
    return clean(", ".join(f"{share.name} ({share.fires:,})" for share in shares))


def _spreads(forecast: Forecast) -> list[RenderableType]:
    from rich.text import Text

    if not forecast.spreads:
        return []
    peak = forecast.peaks[0]
    table = _table(f"{peak.at:%H:%M} with", ">schedules", ">fires/min", ">fires/s", "highest")
    table.add_row("no change", "", f"{peak.fires:,}", f"{peak.second_fires:,}", f"{peak.at:%H:%M}")
    for spread in forecast.spreads:
        table.add_row(
            _change(spread),
            f"{spread.schedules:,}",
            f"{spread.fires:,}",
            f"{spread.second_fires:,}",
            f"{spread.at:%H:%M}",
        )
    span = timedelta(minutes=len(spread.minutes))
    sure = "computed for each schedule" if spread.exact else "expected on average"
    note = f"{sure}; the highest minute and second of {spread.start:%H:%M} to {spread.start + span:%H:%M}, with all else that fires"
    return [table, Text(note, style="dim"), Text()]


def _change(spread: Spread) -> str:
    return "H minute" if spread.how == "H" else f"jitter {spread.jitter_s} s"


def _loads(forecast: Forecast) -> Table:
    table = _table(forecast.by, ">fires", ">share", ">highest minute", "at")
    for load in forecast.loads:
        share = load.fires / forecast.fires
        table.add_row(
            clean(load.name), f"{load.fires:,}", f"{share:.1%}", f"{load.peak_fires:,}", f"{load.peak_at:%m-%d %H:%M}"
        )
    if forecast.others:
        share = forecast.other_fires / forecast.fires
        table.add_row(f"{forecast.others:,} others", f"{forecast.other_fires:,}", f"{share:.1%}", "", "", style="dim")
    return table


def _table(*columns: str) -> Table:
    """A table of ours; a column named `>x` stands to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    return table
