"""`bucketd apply`: makes the schedules what a JSONL file says."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.exits import BAD_INPUT
from bucketd.cli.lines import KNOWN, Line, LineProblem, read_lines
from bucketd.cli.output import clean, emit, note, say
from bucketd.cli.progress import bar, working
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.client.results import PutResult

CALL_LONGEST_S = 1800
WARNINGS_SHOWN = 5
DONE = ("created", "updated", "unchanged", "deleted", "invalid")


def apply(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, one schedule a line; `-` is stdin.")],
    target: Annotated[str | None, typer.Option(help="Target of lines that name none.", show_default=False)] = None,
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Tenant of lines that name none.")] = "default",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what the file lacks, of the tenants that it names.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Go on without bad lines; what they name is not pruned.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Creates and changes schedules so that they are what the file says; a second time it changes nothing.

    Every bad line is named with its number, name and reason; then nothing is changed and the code is 2, unless
    --skip-invalid. A field that is absent has its default, `paused` stays as it is. Lengths are texts such as 90s, 210m or
    1h30m0s. Fields: FIELDS.
    """
    with working(f"reading {file}"):
        lines = _read(file, tenant, target)
    results = _put(context, lines, prune=prune, dry_run=dry_run, skip_invalid=skip_invalid)
    bad = [(lines[result.index].number, result) for result in results if result.status == "invalid"]
    refused = bool(bad) and not skip_invalid
    counts: Counter[str] = Counter() if refused else Counter(result.status for result in results)
    counts["invalid"] = len(bad)
    if as_json:
        _emit(counts, bad, refused=refused, dry_run=dry_run)
    else:
        _tell(lines, results, counts, bad, refused=refused, dry_run=dry_run)
    if refused:
        raise typer.Exit(BAD_INPUT)


apply.__doc__ = (apply.__doc__ or "").replace("FIELDS", ", ".join(KNOWN))


def _read(file: str, tenant: str, target: str | None) -> list[Line]:
    try:
        if file == "-":
            return list(read_lines(sys.stdin.buffer, tenant, target))
        with Path(file).open("rb") as stream:
            return list(read_lines(stream, tenant, target))
    except OSError as error:
        raise InvalidInput(f"expected a readable file, got {file}: {error.strerror}") from None


def _put(
    context: typer.Context, lines: Sequence[Line], *, prune: bool, dry_run: bool, skip_invalid: bool
) -> list[PutResult]:
    """A result a line, and one a pruned schedule. If lines are bad and not to be skipped: those alone, nothing was written."""
    from bucketd.errors import InvalidBatch

    nameless = [line.number for line in lines if not line.wanted.name]
    if prune and skip_invalid and nameless:
        raise InvalidInput(
            f"line {nameless[0]}: expected a name that can be read, since --prune would delete what the line stands for;"
            " correct it, or go without --prune; nothing was changed"
        )
    with session(context).client() as client, bar("schedules", len(lines)) as report:
        try:
            return client.schedules.put_many(
                [line.wanted for line in lines],
                progress=report,
                skip_invalid=skip_invalid,
                prune=prune,
                dry_run=dry_run,
            )
        except InvalidBatch as error:
            return list(error.invalid)


def _emit(counts: Counter[str], bad: Sequence[tuple[int, PutResult]], *, refused: bool, dry_run: bool) -> None:
    problems = [{"line": line, "tenant": r.tenant, "name": r.name, "reason": r.reason} for line, r in bad]
    named: dict[str, Any] = {_word(status): counts[status] for status in DONE}
    emit({"applied": not refused and not dry_run, "dry_run": dry_run} | named | {"problems": problems})


def _tell(
    lines: Sequence[Line],
    results: Sequence[PutResult],
    counts: Counter[str],
    bad: Sequence[tuple[int, PutResult]],
    *,
    refused: bool,
    dry_run: bool,
) -> None:
    for number, result in bad:
        note(f"line {number}: {clean(result.name) or '(no name)'}: {clean(result.reason or '')}", "red")
    if refused:
        many = f"{len(bad)} bad line{'s' if len(bad) > 1 else ''} of {len(lines)}"
        note(f"error: {many}: nothing was changed; correct them, or go on without them by --skip-invalid", "bold red")
        return
    _warn(lines, results)
    words = ", ".join(f"{_word(status)} {counts[status]}" for status in DONE)
    say(words + (" (dry run: nothing was changed)" if dry_run else ""))


def _warn(lines: Sequence[Line], results: Sequence[PutResult]) -> None:
    """Long time-outs in one line, since files have hundreds; other warnings of the client by name, the first few."""
    taken = [result for result in results if result.status not in ("invalid", "deleted")]
    long = sum(_timeout_s(lines[result.index]) > CALL_LONGEST_S for result in taken)
    if long:
        note(
            f"warning: {long} schedule{'s have' if long > 1 else ' has'} a time-out over 30m: it bounds the run with its"
            " retries; one HTTP call never lasts over 30m",
            "yellow",
        )
    others = [(r.name, text) for r in taken for text in r.warnings if not text.startswith("timeout_s")]
    for name, text in others[:WARNINGS_SHOWN]:
        note(f"warning: {clean(name)}: {clean(text)}", "yellow")
    if len(others) > WARNINGS_SHOWN:
        note(f"warning: and {len(others) - WARNINGS_SHOWN} more like these", "yellow")


def _timeout_s(line: Line) -> int:
    return 0 if isinstance(line.wanted, LineProblem) else line.wanted.timeout_s or 0


def _word(status: str) -> str:
    return "pruned" if status == "deleted" else status
