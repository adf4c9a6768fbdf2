"""The runbook as data: its sections about alerts, and the commands that it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from bucketd.cli.app import app

RUNBOOK = (Path(__file__).resolve().parents[2] / "ops" / "runbook.md").read_text(encoding="utf-8")
COMMANDS: Any = typer.main.get_command(app)  # click's classes, of whichever click typer brings


def sections(text: str) -> dict[str, str]:
    """What stands below each third-level heading of the chapter `Alerts`, by heading."""
    chapter = text.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.+)\n", chapter, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `bucketd ..` in code marks, and what is wrong with it: empty if nothing is."""
    for match in re.finditer(r"`(?:[^`]*-- )?bucketd ([a-z][^`]*)`", text):
        yield match[0], _problem(shlex.split(match[1].replace("..", "")))


def _problem(words: list[str]) -> str:
    command = COMMANDS
    while hasattr(command, "commands"):
        if not words and command.invoke_without_command:
            break
        name = words.pop(0) if words else ""
        found = command.commands.get(name)
        if found is None:
            return f"no command {name!r} in {command.name}"
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    wrong = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    return f"{command.name} has no {wrong}" if wrong else ""
