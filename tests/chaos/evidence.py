"""Keeps what a verdict stands on: for whoever has to find out what happened."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.chaos.plan import Event
from tests.chaos.play import Outcome, last_line


def keep(directory: Path, seed: int, events: Sequence[Event], outcome: Outcome) -> None:
    """Writes verdict, plan, rows, calls and the journal into `directory`, beside the logs of all processes and servers."""
    facts = outcome.facts
    _write(directory / "verdict.txt", [f"seed {seed}", last_line(outcome), "", *outcome.verdict.complaints])
    _write(directory / "plan.txt", events)
    _write(
        directory / "faults.txt",
        [*outcome.faults_shown, *(f"{span} commits may be lost" for span in facts.lost_commits)],
    )
    _write(directory / "rows.txt", facts.rows)
    _write(directory / "calls.txt", facts.calls)
    histories = (
        f"{'/'.join(one.life.key)} {one.life.history.id}: {one.life.history.shown()}" for one in facts.expected.values()
    )
    _write(directory / "journal.txt", histories)


def _write(path: Path, lines: Iterable[object]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def clean(directory: Path, *, keep: bool) -> None:
    """Removes the servers' data, and with it all the rest, unless that is to be looked at."""
    for place in (directory / "postgres", directory / "redis") if keep else (directory,):
        shutil.rmtree(place, ignore_errors=True)
