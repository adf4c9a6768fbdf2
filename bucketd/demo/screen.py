"""What one sees: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bucketd.demo.stage import Actor
from bucketd.demo.watch import View
from bucketd.store.keys import PARTITIONS

SPARKS = " ▁▂▃▄▅▆▇█"
PLAIN_LINE_S = 5.0
NOTES = 7
ORDER = ("scheduler", "runner", "target")
COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
BAR = 40  # characters; fewer on a narrow terminal
BESIDE_BAR = 66


@dataclass(slots=True)
class Screen:
    """Say what happens with `act` and `say`, show how it stands with `show`. Use as a context manager."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    _live: Live | None = None
    _act: str = ""
    _notes: list[Text] = field(default_factory=list)
    _last_line: float = 0.0
    _view: View = field(default_factory=View)
    _actors: Sequence[Actor] = ()

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.began

    def act(self, number: int, title: str) -> None:
        """A new act begins."""
        self._act = f"{number} of 5 · {title}"
        self.say(title, "bold blue", mark="▶")

    def say(self, text: str, style: str = "", *, mark: str = "·") -> None:
        """One thing that happened."""
        note = Text.assemble((f"{self.elapsed_s:6.1f} s ", "dim"), (f"{mark} {text}", style))
        self._notes.append(note)
        if self._live is None:
            self.console.print(note, soft_wrap=True)
        self._draw()

    def show(self, view: View, actors: Sequence[Actor]) -> None:
        """How it stands. Without a terminal: one line each 5 s."""
        self._view, self._actors = view, actors
        now = time.monotonic()
        if self._live is None and now - self._last_line >= PLAIN_LINE_S:
            self._last_line = now
            self.console.print(Text(f"{self.elapsed_s:6.1f} s   {_line(view)}", style="dim"), soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        title = f"[bold]bucketd demo[/] · act {self._act} · {self.elapsed_s:.0f} s"
        notes = Group(*self._notes[-NOTES:])
        bar = max(8, min(BAR, self.console.width - BESIDE_BAR))
        body = Group(_gauges(self._view, bar), Text(), _owners(self._view, self._actors, bar), Text(), notes)
        return Panel(body, title=title, title_align="left", border_style="blue", padding=(1, 2))


def _gauges(view: View, bar: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=10)
    grid.add_column(width=bar)
    grid.add_column()
    progress = ProgressBar(total=max(view.due, 1), completed=view.delivered, width=bar)
    grid.add_row("delivered", progress, f"{view.delivered:,} of {view.due:,}")
    top = max(view.rates, default=0)
    latest = view.rates[-1] if view.rates else 0
    grid.add_row("fires/s", Text(_sparks(view.rates[-bar:], top), style="cyan"), f"{latest:,} now, {top:,} at most")
    grid.add_row("lag", _lag_bar(view.lag_p99_ms, bar), f"p50 {_ms(view.lag_p50_ms)}   p99 {_ms(view.lag_p99_ms)}")
    held_up = view.overdue + view.queued + view.waiting
    style = "yellow" if view.overdue else "green"
    words = f"{view.overdue:,} due, {view.queued:,} messages queued, {view.waiting:,} rows to wake"
    grid.add_row("backlog", Text("█" * min(bar, (held_up + 9) // 10) or "▏", style=style), words)
    return grid


def _owners(view: View, actors: Sequence[Actor], bar: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", width=12)
    grid.add_column(width=bar)
    grid.add_column()
    owned = dict(view.owners)
    in_order = sorted(actors, key=lambda actor: (ORDER.index(actor.name.split()[0]), actor.name))
    for colour, actor in zip(COLOURS, in_order, strict=False):
        if actor.killed_at is not None:
            killed = time.strftime("%H:%M:%S", time.localtime(actor.killed_at))
            grid.add_row(
                actor.name, Text("✗ " * (bar // 2), style="red dim"), Text(f"killed -9 at {killed}", style="bold red")
            )
        elif actor.name.startswith("scheduler"):
            share = owned.get(actor.pid, 0)
            grid.add_row(
                actor.name,
                Text("█" * (share * bar // PARTITIONS), style=colour),
                f"owns {share} of {PARTITIONS} partitions",
            )
        else:
            alive = actor.pid in view.runners or actor.name == "target"
            words = "records every call" if actor.name == "target" else "alive" if alive else "…"
            grid.add_row(actor.name, Text("●" if alive else "○", style=colour), words)
    return grid


def _sparks(rates: Sequence[int], top: int) -> str:
    return "".join(SPARKS[-(-rate * (len(SPARKS) - 1) // top)] if top else " " for rate in rates)


def _lag_bar(milliseconds: float | None, bar: int) -> Text:
    """Full at one second; a colour that needs no legend."""
    if milliseconds is None:
        return Text("")
    style = "green" if milliseconds < 100 else "yellow" if milliseconds < 1000 else "red"
    return Text("█" * max(1, min(bar, int(milliseconds * bar / 1000))), style=style)


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:,.0f} ms"


def _line(view: View) -> str:
    rate = view.rates[-1] if view.rates else 0
    owners = "+".join(str(count) for _, count in view.owners) or "none"
    return (
        f"delivered {view.delivered:,} of {view.due:,}, {rate:,} fires/s, lag p50 {_ms(view.lag_p50_ms)} p99 {_ms(view.lag_p99_ms)}, "
        f"overdue {view.overdue:,}, queued {view.queued:,}, to wake {view.waiting:,}, partitions {owners}"
    )
