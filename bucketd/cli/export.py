"""`bucketd export`: the schedules as a JSONL file that `apply` takes back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from bucketd.cli import options
from bucketd.cli.pages import items
from bucketd.cli.progress import bar
from bucketd.cli.session import session
from bucketd.cli.shapes import schedule_line
from bucketd.store.errors import InvalidInput


def export(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Written whole or not at all; `-` is stdout.")] = "-",
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    label: options.AnyLabel = None,
) -> None:
    """Writes schedules as JSONL, by tenant and name, one a line; fields that have their default are left out.

    `bucketd export | bucketd apply -` changes nothing. Targets are not part of it: they hold credentials. Nor are caps of
    tenants: see `bucketd tenant list --json`.
    """
    wanted: dict[str, Any] = {"tenant": tenant, "target": target, "labels": options.labels(label)}
    with session(context).client() as client, _opened(file) as stream, bar("schedules") as report:
        count = 0
        for count, schedule in enumerate(items(client.schedules.list, **wanted), 1):
            stream.write(json.dumps(schedule_line(schedule), ensure_ascii=False) + "\n")
            if not count % 1_000:
                report(count, None)


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    """The stream to write to; a file takes its name when all is written, so a broken export leaves the old one."""
    if file == "-":
        yield sys.stdout
        return
    fresh = Path(file + ".new")
    try:
        with fresh.open("w", encoding="utf-8") as stream:
            yield stream
        os.replace(fresh, file)
    except OSError as error:
        raise InvalidInput(f"expected a file that can be written, got {file}: {error.strerror}") from None
    finally:
        fresh.unlink(missing_ok=True)
