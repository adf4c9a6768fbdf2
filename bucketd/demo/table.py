"""The verdict as a table, and as the last line of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bucketd.demo.expect import Occurrence
from bucketd.demo.verdict import Verdict

EXAMPLES = 5


def show(console: Console, verdict: Verdict, took_s: float) -> None:
    """Prints the table, examples of what went wrong, and one clear last line."""
    console.print(_table(verdict, took_s))
    for name, offences in _offences(verdict):
        _examples(console, name, offences)
    if verdict.good:
        words = (
            f"✔ all {verdict.due:,} occurrences were delivered, none twice and none early, "
            f"with a scheduler and a runner killed half-way ({took_s:.0f} s)"
        )
        console.print(Text(words, style="bold green"), soft_wrap=True)
    else:
        found = ", ".join(f"{len(offences)} {name}" for name, offences in _offences(verdict) if offences)
        console.print(
            Text(f"✘ {found} of {verdict.due:,} occurrences ({took_s:.0f} s)", style="bold red"), soft_wrap=True
        )


def _table(verdict: Verdict, took_s: float) -> Table:
    table = Table(title="Verdict", title_style="bold", title_justify="left", show_header=False, border_style="blue")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("due", f"{verdict.due:,}", "worked out apart from the engine, second by second")
    table.add_row("delivered", f"{verdict.delivered:,}", "of those, seen by the recording target")
    for name, offences in _offences(verdict):
        table.add_row(name, Text(str(len(offences)), style="bold red" if offences else "green"), _MEANING[name])
    table.add_row(
        "repeated", f"{verdict.repeated:,}", "by a higher attempt after the kill: allowed, and told to the target"
    )
    for name, words in _LATENESS.items():
        table.add_row(f"lateness {name}", _pair(verdict.lateness_ms.get(name, (None, None))), words)
    table.add_row("took", f"{took_s:.0f} s", "servers, load, kills, backfill and this")
    return table


_MEANING = {
    "missing": "due and never delivered",
    "doubled": "two calls of one attempt, or a call after the run's success was written",
    "early": "begun before its instant",
    "unexpected": "delivered, and nobody had asked for it",
    "unfinished": "delivered, and its row does not say succeeded",
}
_LATENESS = {
    "calm": "p50 / p99 of due instant to begin of the call",
    "all": "the same with what was due between the kills and the take-over",
}


def _offences(verdict: Verdict) -> list[tuple[str, Sequence[Occurrence]]]:
    return [(name, getattr(verdict, name)) for name in _MEANING]


def _examples(console: Console, name: str, offences: Sequence[Occurrence]) -> None:
    for tenant, schedule, at_s in offences[:EXAMPLES]:
        console.print(
            Text(
                f"  {name}: {tenant}/{schedule} at {datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}", style="red"
            )
        )


def _pair(values: tuple[float | None, float | None]) -> str:
    return " / ".join("-" if value is None else f"{value:,.0f}" for value in values) + " ms"
