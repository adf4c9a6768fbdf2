"""What people see while a play goes on: each turn as a line, and below it how the cluster stands. No terminal: plain lines."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tests.chaos.play import Outcome, Play

PERIOD_S = 0.5
PLAIN_S = 15.0  # between lines without a terminal


class Screen:
    """A context manager around the play."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, line: str) -> None:
        """A turn of the play."""
        self._console.print(f"{time.monotonic() - self._begun:6.1f} s  {line}", markup=False)

    async def show(self, play: Play) -> Outcome:
        """Plays it."""
        showing = asyncio.create_task(self._refresh(play))
        try:
            return await play.run()
        finally:
            showing.cancel()

    async def _refresh(self, play: Play) -> None:
        while True:
            line = self._standing(play)
            if self._live is not None:
                self._live.update(Text(line))
            elif play.watch.looks:
                self.tell(line)
            await asyncio.sleep(PERIOD_S if self._live is not None else PLAIN_S)

    def _standing(self, play: Play) -> str:
        stage, now_s = play.stage, play.stage.now()
        looks = play.watch.looks
        behind = f"{now_s - min(mark.settled_s for mark in looks[-1].marks):.0f} s" if looks else "-"
        wrong = ", ".join(f"{kind} ({place})" for place, kind in play.active.items()) or "nothing"
        return (
            f"faults {len(play.happened)} of {len(play.plan)}, calls {len(stage.target.requests)},"
            f" writes {stage.journal.writes}, settled {behind} ago; wrong now: {wrong}"
        )
