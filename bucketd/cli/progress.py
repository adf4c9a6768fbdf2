"""Progress on stderr, for a terminal only: a log file full of bars helps nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bucketd.cli.output import stderr

Report = Callable[[int, int | None], None]


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Report]:
    """A bar; call what it yields with (done, total). A total of None shows that it goes on, not how far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = stderr()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner for one step whose length is unknown."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
