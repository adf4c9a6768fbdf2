"""`bucketd why`: why a schedule ran at an instant, or why it did not."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bucketd.cli import options
from bucketd.cli.output import clean, emit, note, pairs, say
from bucketd.cli.progress import working
from bucketd.cli.session import session

if TYPE_CHECKING:
    from bucketd.explain.answer import Answer

SETTINGS = {"ignore_unknown_options": True, "help_option_names": ["--help"]}  # -24h is an instant, and asks for no help


def why(
    context: typer.Context,
    name: options.Name,
    at: Annotated[
        str,
        typer.Argument(
            metavar="AT",
            help=f"{options.INSTANT}; or a time without an offset (2026-03-08T02:30), of the schedule's own zone.",
            show_default=False,
        ),
    ],
    tenant: options.Tenant = "default",
    as_json: options.Json = False,
) -> None:
    """Says why it ran then, or why it did not: fired, skipped by which rule, paused by whom, in a gap, not in the spec, ..

    An instant that is no occurrence is taken for one of the same minute. The code is 0 whatever the answer is, and 3 if there never
    was such a schedule; programs read `verdict` of --json.
    """
    asked = moment(at)
    with session(context).client() as client, working("looking"):
        answer = client.schedules.why(name, asked, tenant=tenant)
    if as_json:
        emit(answer)
        return
    say(clean(answer.text))
    for fact in answer.facts:
        say(f"  - {clean(fact)}")
    note("")
    pairs(_shown(answer))


def moment(text: str) -> datetime:
    """An instant, or a time of the wall clock: without a zone. Raises InvalidInput."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        return options.instant(text, "at")
    is_date = len(text.strip()) == len("2026-11-30") or read.tzinfo is not None
    return options.instant(text, "at") if is_date else read


def _shown(answer: Answer) -> dict[str, object]:
    values = {
        "verdict": answer.verdict.value,
        "asked": answer.asked,
        "occurrence": answer.slot,
        "due": answer.due if answer.due != answer.slot else None,
        "run": answer.run and answer.run.id,
        "before": answer.before,
        "after": answer.after,
    }
    return {key: value for key, value in values.items() if value is not None}
