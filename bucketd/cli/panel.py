"""The live half of `bucketd up`: a thread that reads, and a panel (or a line each ten seconds) that shows."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bucketd.cli.children import Children
from bucketd.cli.output import clean, note, stdout

if TYPE_CHECKING:
    from rich.live import Live
    from rich.panel import Panel as Frame

    from bucketd.cli.readings import Reading
    from bucketd.store.config import Settings

READ_S = 2.0  # the counts of schedules cost half a second at three million
LINE_S = 10.0
MESSAGES = 5


class Watcher:
    """Reads every other second in a thread of its own: tending the children must not wait for a database that hangs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.latest: Reading | None = None
        self.fires_per_s: float | None = None
        self.problem: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(self._settings.statement_timeout_s + 1)

    def _run(self) -> None:
        import psycopg

        from bucketd.cli.readings import reader
        from bucketd.store.errors import BucketdError

        while not self._stop.is_set():
            try:
                with reader(self._settings) as source:
                    while not self._stop.is_set():
                        self._take(source.read())
                        self._stop.wait(READ_S)
            except (BucketdError, psycopg.Error) as error:
                self.problem = str(error).splitlines()[0] if str(error) else type(error).__name__
                self._stop.wait(READ_S)

    def _take(self, reading: Reading) -> None:
        before, self.latest, self.problem = self.latest, reading, None
        if before is not None and before.drained is not None and reading.drained is not None:
            # A node that left took its count along: a step back is no negative rate.
            drained = max(0, reading.drained - before.drained)
            self.fires_per_s = drained / max(0.001, reading.monotonic_s - before.monotonic_s)


class Panel:
    """Shows what the watcher read: drawn on a terminal, else one line each ten seconds."""

    def __init__(self, watcher: Watcher, children: Children, live: bool) -> None:
        self._watcher = watcher
        self._children = children
        self._messages: deque[str] = deque(maxlen=MESSAGES)
        self._live = self._make_live() if live else None
        self._line_at = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._children.tell = self._say
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._children.tell = note
        if self._live is not None:
            self._live.stop()

    def draw(self, now: float) -> None:
        """`now`: monotonic seconds. Called often; does little."""
        if self._live is not None:
            self._live.update(self._frame())
        elif now >= self._line_at:
            self._line_at = now + LINE_S
            self._print_line()

    def _say(self, text: str) -> None:
        self._messages.append(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {clean(text)}")

    def _print_line(self) -> None:
        from bucketd.cli.drawing import line

        watcher = self._watcher
        if watcher.problem is not None:
            note(f"cannot read the cluster's state: {clean(watcher.problem)}", "yellow")
        elif watcher.latest is not None:
            note(line(watcher.latest, watcher.fires_per_s))

    def _make_live(self) -> Live:
        from rich.live import Live

        return Live(console=stdout(), refresh_per_second=4, transient=False)

    def _frame(self) -> Frame:
        from rich.console import Group, RenderableType
        from rich.panel import Panel as Frame
        from rich.text import Text

        from bucketd.cli.drawing import drawn

        watcher = self._watcher
        parts: list[RenderableType] = [
            drawn(watcher.latest, watcher.fires_per_s)
            if watcher.latest is not None
            else Text("reading ..", style="dim")
        ]
        if watcher.problem is not None:
            parts.append(Text(f"cannot read the cluster's state: {clean(watcher.problem)}", style="bold red"))
        alive = [child for child in self._children.members if child.pid is not None]
        restarts = sum(child.restarts for child in self._children.members)
        parts.append(
            Text(
                f"{len(alive)} of {len(self._children.members)} processes run, {restarts} restarts; Ctrl-C stops all",
                "dim",
            )
        )
        parts += [Text(message, style="yellow") for message in self._messages]
        return Frame(Group(*parts), title="bucketd", title_align="left", border_style="cyan")
