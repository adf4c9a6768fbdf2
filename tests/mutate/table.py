"""What `make mutate` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.mutate.campaign import Result


def show(console: Console, results: Sequence[Result]) -> None:
    """A line a guard; below, what is known about those that were not caught."""
    table = Table(title="guards taken away, one at a time")
    for heading in ("guard", "invariant", "test", "verdict"):
        table.add_column(heading, overflow="fold")
    table.add_column("s", justify="right")
    for result in results:
        style = "green" if result.is_caught else "bold red"
        table.add_row(
            Text(result.guard.name), Text(result.guard.invariant), Text(result.judgement.test.removeprefix("tests/")),
            Text(result.judgement.verdict.value, style=style), f"{result.seconds:.1f}",
        )  # fmt: skip
    console.print(table)
    for result in results:
        if not result.is_caught:
            console.print(Text(f"\n{result.guard.name}: {result.judgement.said}", style="bold red"))
            console.print(Text(result.output), soft_wrap=True)
    console.print(Text(summary(results)))


def summary(results: Sequence[Result]) -> str:
    """The last line."""
    caught = sum(result.is_caught for result in results)
    return f"guards {len(results)}, caught {caught}, not caught {len(results) - caught}"


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "guard": result.guard.name, "file": result.guard.file, "invariant": result.guard.invariant,
            "why": result.guard.why, "tests": list(result.guard.tests), "verdict": result.judgement.verdict.name.lower(),
            "test": result.judgement.test, "said": result.judgement.said, "seconds": round(result.seconds, 1),
        }
        for result in results
    ]  # fmt: skip
