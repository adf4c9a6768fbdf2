"""A reading, drawn: figures, bars of owners, and the map of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bucketd.cli.output import clean, iso, short

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from bucketd.cli.readings import Reading
    from bucketd.store.breakers import OpenBreaker

PARTITIONS = 256
MAP_WIDTH = 64
BAR_WIDTH = 32
SETTLED_LATE_S = 300
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


def drawn(reading: Reading, fires_per_s: float | None = None) -> Group:
    """The whole picture. `fires_per_s`: as measured between two readings; None: from the last minute."""
    from rich.console import Group

    return Group(_figures(reading, fires_per_s), _owners(reading), _map(reading))


def line(reading: Reading, fires_per_s: float | None = None) -> str:
    """The same as one line for a log."""
    status = reading.status
    lost = f" unowned={status.unowned_partitions}" if status.unowned_partitions else ""
    rate = fires_per_s if fires_per_s is not None else sum(status.last_minute.values()) / 60
    return (
        f"fires/s={rate:.1f} late_p99={short(reading.late_p99_s)} backlog={status.due} batches={status.batches}"
        f" settled={short(status.settled_lag_s)} behind nodes={status.owners}{lost} runners={status.runners}"
        f" dead={status.dead_letters} holds={status.holds}"
        + (f" failed_specs={status.failed_specs}" if status.failed_specs else "")
        + (f" breakers={len(status.breakers)}" if status.breakers else "")
    )


def _figures(reading: Reading, fires_per_s: float | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    status = reading.status
    minute = sum(status.last_minute.values())
    rate = f"{fires_per_s:,.1f} fires/s now, " if fires_per_s is not None else ""
    settled_style = "yellow" if status.settled_lag_s > SETTLED_LATE_S else ""
    rows: list[tuple[str, str, str]] = [
        ("schedules", f"{status.schedules:,}" + (f", {status.paused:,} of them paused" if status.paused else ""), ""),
        ("runs", f"{rate}{minute:,} in the last minute{_by_status(status.last_minute)}", ""),
        ("start", f"{short(reading.late_p50_s)} late (p50), {short(reading.late_p99_s)} (p99)", ""),
        ("backlog", f"{status.due:,} due, {status.batches:,} batches in work{_by_status(status.unfinished)}", ""),
        (
            "settled",
            f"to {iso(status.settled_through.replace(microsecond=0))}, {short(status.settled_lag_s)} behind",
            settled_style,
        ),
        ("runners", f"{status.runners} alive", "" if status.runners else "bold red"),
        ("dead letters", f"{status.dead_letters:,}", "red" if status.dead_letters else ""),
        ("failed specs", f"{status.failed_specs:,}", "red" if status.failed_specs else ""),
        ("backfills", f"{status.backfills:,} open", ""),
        ("holds", f"{status.holds:,}", "yellow" if status.holds else ""),
        *(("breaker open", _breaker(breaker), "bold red") for breaker in status.breakers),
    ]
    table = Table.grid(padding=(0, 2))
    for name, text, style in rows:
        table.add_row(Text(name, style="bold"), Text(text, style=style))
    return table


def _breaker(breaker: OpenBreaker) -> str:
    times = f", {breaker.openings} times in a row" if breaker.openings > 1 else ""
    since, probe_at = (iso(at.replace(microsecond=0)) for at in (breaker.since, breaker.probe_at))
    return f"{clean(breaker.target)}: {clean(breaker.reason)}; since {since}{times}, next probe at {probe_at}"


def _by_status(counts: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name} {count:,}' for name, count in sorted(counts.items()))})" if counts else ""


def _owners(reading: Reading) -> Table:
    """One bar a node: its share of the partitions."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for place, owner in enumerate(reading.owners):
        letter, colour = _sign(place)
        filled = round(owner.partitions / PARTITIONS * BAR_WIDTH)
        where = f"{clean(owner.host)}:{owner.pid}" if owner.host else "not heard of in Redis"
        table.add_row(
            Text(f"node {letter}", style=f"bold {colour}"),
            Text("█" * filled + "░" * (BAR_WIDTH - filled), style=colour),
            Text(f"{owner.partitions} partitions"),
            Text(f"{owner.node[:8]} {where}", style="dim"),
        )
    return table


def _map(reading: Reading) -> Text:
    """256 letters: partition 0 is the first one; `.` has no owner."""
    from rich.text import Text

    signs = {owner.node: _sign(place) for place, owner in enumerate(reading.owners)}
    text = Text()
    for number, owner in enumerate(reading.partition_owners):
        letter, colour = signs[owner] if owner else (".", "bold red")
        text.append(letter, style=colour)
        if number % MAP_WIDTH == MAP_WIDTH - 1:
            text.append("\n")
    return text


def _sign(place: int) -> tuple[str, str]:
    return _LETTERS[place % len(_LETTERS)], _COLOURS[place % len(_COLOURS)]
