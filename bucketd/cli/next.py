"""`bucketd next`: when something fires, what the clocks do to it, what it means in words, and what other schedulers would do.

An expression is answered without any store; only the name of a schedule needs one.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from math import ceil, floor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.cli.next_shown import Asked


def next_(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[EXPR|NAME]",
            help="A cron expression in quotes, a macro, an interval (15m), or the name of a schedule.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[str | None, typer.Option(help="Elapsed time between occurrences: 90s, 15m, 1h30m.")] = None,
    at: Annotated[str | None, typer.Option(metavar="INSTANT", help=f"Once: {options.INSTANT}.")] = None,
    tz: Annotated[str | None, typer.Option(help="IANA zone; UTC if absent.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Later than this only; now if absent.", show_default=False)
    ] = None,
    gap: Annotated[str | None, typer.Option(help="Wall times that do not exist: auto, run_after, skip, shift.")] = None,
    fold: Annotated[str | None, typer.Option(help="Wall times that exist twice: auto, first, second, both.")] = None,
    seed: Annotated[str | None, typer.Option(help="What H is drawn from: the id of a schedule.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, help="So many.")] = 5,
    tenant: options.Tenant = "default",
    is_name: Annotated[bool, typer.Option("--name", help="It is a name, even if it looks like an interval.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Say it in plain English as well.")] = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Where croniter, Kubernetes, EventBridge and cronie differ within two years."),
    ] = False,
    as_json: options.Json = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help='Reads {"id", "expr"|"every"|"at", "tz", "after", "gap", "fold", "seed", "n"} a line from stdin, writes'
            ' {"id", "fires"} or {"id", "error"} a line; no other option, no store.',
        ),
    ] = False,
) -> None:
    """The next occurrences of an expression or of a schedule, in UTC and in its zone.

    What has a blank or begins with @ is an expression, what reads as a duration is an interval, anything else is a name.
    Code 0 also if nothing is left to fire.
    """
    if jsonl:
        if any(value is not None for value in (what, every, at, tz, after, gap, fold, seed)) or words or compare:
            raise InvalidInput("expected --jsonl alone: each line says what it asks for, got other options as well")
        from bucketd.cli.next_lines import answer_lines

        answer_lines(sys.stdin.buffer, sys.stdout)
        return
    from bucketd.cli import next_shown

    expr, every, name = _kind(what, every, at, is_name)
    if name is not None:
        others = {"tz": tz, "after": after, "gap": gap, "fold": fold, "seed": seed}
        if given := [f"--{key}" for key, value in others.items() if value is not None]:
            raise InvalidInput(
                f"expected {', '.join(given)} with an expression only: a schedule has its own, got {name!r}"
            )
        asked = _stored(context, name, tenant, count)
    else:
        asked = _typed(expr, every, at, tz, after, gap, fold, seed, count)
    if as_json:
        from bucketd.cli.output import emit

        emit(next_shown.document(asked, words=words, compare=compare))
    else:
        next_shown.show(asked, words=words, compare=compare)


def _kind(
    what: str | None, every: str | None, at: str | None, is_name: bool
) -> tuple[str | None, str | None, str | None]:
    """(expression, interval, name): one of them, or none with --at."""
    from bucketd.timing.duration import parse_duration
    from bucketd.timing.errors import TimingError

    given = [shown for shown, value in (("EXPR", what), ("--every", every), ("--at", at)) if value is not None]
    if len(given) != 1:
        raise InvalidInput(f"expected one of EXPR or NAME, --every and --at, got {' and '.join(given) or 'none'}")
    if what is None:
        return None, every, None
    if is_name:
        return None, None, what
    text = what.strip(" \t")
    if text.lower().startswith("every "):
        return None, text[len("every ") :], None
    if not text or text.startswith("@") or " " in text or "\t" in text:
        return what, None, None
    try:
        parse_duration(text)
    except TimingError:
        return None, None, what
    return None, text, None


def _typed(
    expr: str | None,
    every: str | None,
    at: str | None,
    tz: str | None,
    after: str | None,
    gap: str | None,
    fold: str | None,
    seed: str | None,
    count: int,
) -> Asked:
    from bucketd.cli.next_shown import Asked, pointed
    from bucketd.timing import AtSpec, CronError, EverySpec, TimingError, fires_between, parse_cron, parse_duration
    from bucketd.timing.offsets import LAST_S

    now = datetime.now(UTC)
    after_s = floor(options.instant(after, "after", now).timestamp()) if after is not None else floor(now.timestamp())
    phase = 0
    warnings: tuple[str, ...]
    spec: Any
    try:
        # tz, gap and fold are to be good whatever is asked about.
        spec, warnings = parse_cron(
            "* * * * *" if expr is None else expr, tz or "UTC", gap=gap or "auto", fold=fold or "auto", seed=seed
        )
        if every is not None:
            spec, warnings = EverySpec(parse_duration(every)), (_ANY_PHASE,)
        elif at is not None:
            spec, phase = AtSpec(), ceil(options.instant(at, "at", now).timestamp())
    except CronError as error:
        raise InvalidInput(pointed(error, expr or ""), field=error.field) from error
    except TimingError as error:
        raise InvalidInput(f"{error.code}: {error}") from error
    fires = fires_between(spec, after_s + 1, LAST_S + 1, phase, count)
    return Asked(spec, phase, expr, tz or "UTC", seed, after_s, now, fires, tuple(warnings))


_EPOCH_DAY = date(1970, 1, 1).toordinal()
_ANY_PHASE = "shown without a phase; a schedule gets one of its own, drawn from its id, unless --phase says which"


def _stored(context: typer.Context, name: str, tenant: str, count: int) -> Asked:
    from bucketd.cli.next_shown import Asked
    from bucketd.cli.shapes import zone_of
    from bucketd.client.timings import At, Cron
    from bucketd.timing import AtSpec, EverySpec, parse_cron

    with session(context).client() as client:
        found = client.schedules.get(name, tenant=tenant)
        coming = client.schedules.next(name, count, tenant=tenant)
    now, timing = datetime.now(UTC), found.timing
    warnings: tuple[str, ...] = ()
    spec: Any
    if isinstance(timing, Cron):
        spec, warnings = parse_cron(timing.expression, timing.tz, gap=timing.gap, fold=timing.fold, seed=str(found.id))
    elif isinstance(timing, At):
        spec = AtSpec()
    else:
        spec = EverySpec(timing.every_s)
    if found.exclude:
        spec = replace(spec, exclude=tuple(sorted(day.toordinal() - _EPOCH_DAY for day in found.exclude)))
    if found.calendars:
        warnings += (f"dates of {', '.join(found.calendars)} are left out as well",)
    if found.paused:
        warnings += ("it is paused: none of these runs before `bucketd schedule resume`",)
    phase = int(timing.at.timestamp()) if isinstance(timing, At) else getattr(timing, "phase", None) or 0
    fires = [int(at.timestamp()) for at in coming]
    expr = timing.expression if isinstance(timing, Cron) else None
    return Asked(spec, phase, expr, zone_of(found), str(found.id), floor(now.timestamp()), now, fires, warnings)
