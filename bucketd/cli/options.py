"""Options that many commands share, and how their texts are read. A bad one raises InvalidInput: exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from bucketd.store.errors import InvalidInput

Json = Annotated[
    bool, typer.Option("--json", help="JSON without colours: one document, or one object a line for a list.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False)]
Tenant = Annotated[str, typer.Option("--tenant", "-t", help="Tenant of the schedule.")]
AnyTenant = Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant.", show_default=False)]
AnyTarget = Annotated[str | None, typer.Option("--target", help="Only schedules of this target.", show_default=False)]
AnyLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--label", "-l", metavar="KEY=VALUE", help="Only with this label; again for more.", show_default=False
    ),
]
INSTANT = "ISO 8601 with an offset (2026-11-30T09:00Z), a date (midnight UTC), `now`, or an age such as -24h"
FromAt = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help=f"From here on: {INSTANT}.", show_default=False)
]
ToAt = Annotated[
    str | None, typer.Option("--to", metavar="INSTANT", help="Up to, not with, this instant.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="At most so many.")]

IfRevision = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        metavar="N",
        help="Only if it is at this revision; 0: only if there is none.",
        show_default=False,
    ),
]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_FRACTION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s?")


def instant(text: str, field: str, now: datetime | None = None) -> datetime:
    """An instant as INSTANT says, aware, UTC. A time without an offset is refused: whose midnight would it be?"""
    from bucketd.timing.duration import parse_duration

    stripped = text.strip()
    now = now or datetime.now(UTC)
    if stripped == "now":
        return now
    if stripped.startswith(("-", "+")):
        length = timedelta(seconds=parse_duration(stripped[1:]))
        return now - length if stripped[0] == "-" else now + length
    try:
        read = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidInput(f"{field}: expected an instant ({INSTANT}), got {text!r}", field=field) from None
    if _DATE.fullmatch(stripped):
        return read.replace(tzinfo=UTC)
    if read.tzinfo is None:
        raise InvalidInput(f"{field}: expected an offset or Z behind the time, got {text!r}", field=field)
    try:
        return read.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(
            f"{field}: expected an instant in the years 1 to 9999 of UTC, got {text!r}", field=field
        ) from None


def dates(texts: Iterable[str] | None, field: str) -> list[date]:
    """Dates as `2026-12-25`."""
    found = []
    for text in texts or ():
        try:
            if not _DATE.fullmatch(text):
                raise ValueError
            found.append(date.fromisoformat(text))
        except ValueError:
            raise InvalidInput(f"{field}: expected a date such as 2026-12-25, got {text!r}", field=field) from None
    return found


def maybe_instant(text: str | None, field: str) -> datetime | None:
    """The same, for an option that may be absent."""
    return None if text is None else instant(text, field)


def maybe_seconds(text: str | None, field: str) -> int | None:
    """A duration (`90s`, `1h30m0s`, `90`) in seconds; an option that is absent is None."""
    return None if text is None else seconds(text, field)


def seconds(text: str | int, field: str) -> int:
    """A duration in whole seconds, at least one."""
    from bucketd.timing.duration import parse_duration
    from bucketd.timing.errors import TimingError

    try:
        return parse_duration(text)
    except TimingError as error:
        raise InvalidInput(f"{field}: {error}", field=field) from None


def fraction(value: str | float, field: str) -> float:
    """Seconds that may be a fraction, or none at all: `0`, `0.5`, `0.5s`, and what `seconds` reads."""
    if isinstance(value, float):
        return value
    text = value if isinstance(value, str) else repr(value)  # of a file: 0, 10; of anything else the message shows it
    match = _FRACTION.fullmatch(text.strip())
    return float(match[1] if match else seconds(text, field))


def maybe_fraction(value: str | float | None, field: str) -> float | None:
    """The same, for an option that may be absent."""
    return None if value is None else fraction(value, field)


def labels(texts: Iterable[str] | None) -> dict[str, str] | None:
    """`["a=b"]` as a mapping; None if there are none."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidInput(f"label: expected KEY=VALUE, got {text!r}", field="labels")
        if found.setdefault(key, value) != value:
            raise InvalidInput(
                f"label: expected one value for {key!r}, got {found[key]!r} and {value!r}", field="labels"
            )
    return found or None


def headers(texts: Iterable[str] | None) -> dict[str, str]:
    """`["X-Key: value"]` as a mapping."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, colon, value = text.partition(":")
        if not key.strip() or not colon:
            raise InvalidInput(f"header: expected `NAME: VALUE`, got {text.partition(':')[0]!r}", field="headers")
        found[key.strip()] = value.strip()
    return found


def payload(text: str | None) -> Any:
    """JSON text, or `@FILE` that holds some; None if absent."""
    if text is None:
        return None
    try:
        return json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise InvalidInput(f"payload: cannot read {text[1:]}: {error.strerror}", field="payload") from None
    except ValueError as error:
        raise InvalidInput(f"payload: expected JSON, got something else: {error}", field="payload") from None


def confirmed(question: str, yes: bool) -> None:
    """Returns if the user agrees. Declined: exit code 1. Nobody to ask: InvalidInput."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Nobody can be asked here: expected --yes, got nothing; nothing was changed")
    if not typer.confirm(question, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
