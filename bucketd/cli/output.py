"""What commands print: tables for people, JSON for programs, and no control character that a tenant put into a name."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 240  # a table in a pipe or a file is for grep, not for a screen


def stdout() -> Console:
    """The console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console for everything that is no result: progress, questions, warnings."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(stderr=stderr, width=wide, markup=False, highlight=False, emoji=False)


def note(text: str, style: str = "") -> None:
    """A line for people, on stderr."""
    stderr().print(text, style=style, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """A result in words, on stdout."""
    stdout().print(text, style=style, soft_wrap=True)


def emit(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, default=plain, ensure_ascii=False, indent=2))


def emit_lines(values: Iterable[Any]) -> None:
    """JSONL on stdout: one object a line."""
    for value in values:
        print(json.dumps(value, default=plain, ensure_ascii=False))


def plain(value: object) -> object:
    """`json.dumps(default=..)` for our frozen results: instants as ISO UTC, durations in seconds."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"expected a value that JSON or bucketd knows, got {type(value).__name__}")


def iso(at: datetime | None) -> str:
    """`2026-11-30T09:00:00Z`, with microseconds only where there are some; `-` for None."""
    return "-" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def short(seconds: float | None) -> str:
    """A length of time for the eye: `850ms`, `12.3s`, `4m05s`, `3h10m`, `2d04h`; `-` for None."""
    if seconds is None:
        return "-"
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    if left < 60:
        return f"{sign}{left * 1000:.0f}ms" if left < 1 else f"{sign}{left:.1f}s"
    minutes, hours, days = int(left // 60), int(left // 3600), int(left // 86_400)
    if days:
        return f"{sign}{days}d{hours % 24:02d}h"
    return f"{sign}{hours}h{minutes % 60:02d}m" if hours else f"{sign}{minutes}m{int(left) % 60:02d}s"


def clean(text: str) -> str:
    """`text` without control characters: names come from tenants, and a terminal obeys escape sequences."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table on stdout; `empty` is printed (on stderr) if there is no row. A column named `>x` stands to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    listed = [[cell(value) for value in row] for row in rows]
    if not listed:
        note(empty)
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    for row in listed:
        drawn.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in row))
    stdout().print(drawn)


def pairs(values: Mapping[str, object]) -> None:
    """One thing as `name  value` lines, on stdout."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        say(f"{name:<{width}}  {cell(value)}")


def cell(value: object) -> str:
    """A value as one line of text."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple):
        return clean(json.dumps(value, default=plain, ensure_ascii=False)) if value else "-"
    return clean(str(value))


_STYLES = {
    "succeeded": "green",
    "ok": "green",
    "dead": "bold red",
    "fail": "bold red",
    "warn": "yellow",
    "retrying": "yellow",
    "held": "yellow",
    "paused": "yellow",
    "running": "cyan",
    "skipped": "dim",
    "cancelled": "dim",
}
