"""`bucketd dead ..`: runs that failed for good, kept with payload and failures until someone decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import letters, options
from bucketd.cli.output import emit, emit_lines, iso, note, say, short, table
from bucketd.cli.pages import items
from bucketd.cli.progress import bar, working
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from bucketd.client import Client, Replayed

COUNTED = 1_000_000  # beyond it a question is as good without the figure

group = typer.Typer(
    no_args_is_help=True,
    help="Dead letters: look; let the old run go on (replay); make a new one (run-again); or drop (discard).",
)

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID..", help="Ids of dead letters; or choose with the options.", show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.")]
OfName = Annotated[str | None, typer.Option("--name", help="Only of this schedule.", show_default=False)]
OfReason = Annotated[
    str | None, typer.Option("--reason", help="Only with this reason, as `dead list` shows it.", show_default=False)
]
DiedFrom = Annotated[
    str | None,
    typer.Option("--from", metavar="INSTANT", help=f"Only died from here on: {options.INSTANT}.", show_default=False),
]
DiedTo = Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="Only died before.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s", help="Spread their starts: 50/s, 100/m, 1000/h.", show_default=False),
]
WHICH = "--all, or some of --name, --tenant, --target, --reason, --label, --from and --to"
_RATE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?:/\s*([smh]))?\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@group.command("list")
def list_(
    context: typer.Context,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    reason: OfReason = None,
    label: options.AnyLabel = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    limit: options.Limit = 100,
    as_json: options.Json = False,
) -> None:
    """Lists dead letters, the latest first."""
    which = _which(name, tenant, target, reason, label, died_from, died_to)
    with session(context).client() as client:
        found = list(items(client.dead.list, limit + 1, **which))
    if as_json:
        emit_lines(found[:limit])
        return
    now = datetime.now(UTC)
    table(letters.COLUMNS, (letters.row(letter, now) for letter in found[:limit]), empty="no dead letters")
    if len(found) > limit:
        note(f"there are more than {limit}; see --limit")


@group.command()
def show(
    context: typer.Context, dead_letter: Annotated[int, typer.Argument(metavar="ID")], as_json: options.Json = False
) -> None:
    """Shows one dead letter with its payload and all attempts, and whether its schedule has changed since."""
    with session(context).client() as client:
        found = client.dead.get(dead_letter)
    if as_json:
        emit(found)
    else:
        letters.draw(found)


@group.command()
def replay(
    context: typer.Context,
    ids: Ids = None,
    everything: Everything = False,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    reason: OfReason = None,
    label: options.AnyLabel = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Lets the same runs go on: the same run ids, the next attempt numbers. Use it when the work is still to be done.

    They are called with payload and target as the schedule has them then: correct those first. The letters go. Choose by ids, or by
    options; without ids it counts first, and asks unless --yes. --rate: the times stand in the runs, so nothing has to stay for
    them. Interrupted, it has replayed what it said; the same command goes on with the rest. For a new run see `run-again`.
    """
    which = _which(name, tenant, target, reason, label, died_from, died_to)
    _check_said("replay", ids, everything, which)
    rate_per_s = _rate_per_s(rate)
    asked: dict[str, Any] = {"rate_per_s": rate_per_s, "dry_run": dry_run}
    with session(context).client() as client:
        if ids:
            found = client.dead.replay(ids, **asked)
        else:
            total = _total(client, "replay", which, yes or dry_run, rate_per_s)
            with _steps("replay", total) as progress:
                found = client.dead.replay(all=everything, **which, **asked, progress=progress)
    _account(found, dry_run, rate_per_s, as_json)


@group.command("run-again")
def run_again(
    context: typer.Context,
    ids: Annotated[list[int], typer.Argument(metavar="ID..", help="Ids of dead letters.", show_default=False)],
    discard: Annotated[bool, typer.Option("--discard", help="Discard the letter, as the new run is there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Makes a new run of a letter's schedule, now: a new run id, attempt 1. Use it when a target that has seen the old id must work anew.

    It is called with payload and target as the schedule has them now, not with the letter's payload. The letter stays, unless
    --discard. To let the old run go on see `replay`.
    """
    with session(context).client() as client:
        for letter in ids:
            run = client.dead.run_again(letter, discard=discard)
            if as_json:
                emit_lines([{"dead_letter": letter, "run": run}])
            else:
                say(run)
    if not as_json:
        note("with payload and target as the schedule has them now")


@group.command()
def discard(
    context: typer.Context,
    ids: Ids = None,
    everything: Everything = False,
    name: OfName = None,
    tenant: options.AnyTenant = None,
    target: options.AnyTarget = None,
    reason: OfReason = None,
    label: options.AnyLabel = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    dry_run: DryRun = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Drops them with their payloads; this cannot be undone. The runs stay dead, and a hook that has not heard of them will not.

    Choose as for `replay`. Without ids it counts first, and asks unless --yes.
    """
    which = _which(name, tenant, target, reason, label, died_from, died_to)
    _check_said("discard", ids, everything, which)
    with session(context).client() as client:
        if dry_run:
            count = len([client.dead.get(one) for one in set(ids)]) if ids else _total(client, "discard", which, True)
        elif ids:
            count = client.dead.discard(ids)
        else:
            total = _total(client, "discard", which, yes)
            with _steps("discard", total) as progress:
                count = client.dead.discard(all=everything, **which, progress=progress)
    if as_json:
        emit({"discarded": count, "dry_run": True} if dry_run else {"discarded": count})
    else:
        say(f"{'would discard' if dry_run else 'discarded'}: {count}")


def _which(
    name: str | None,
    tenant: str | None,
    target: str | None,
    reason: str | None,
    label: list[str] | None,
    died_from: str | None,
    died_to: str | None,
) -> dict[str, Any]:
    """What is said of the letters that are meant, as the client takes it."""
    which = {
        "name": name,
        "tenant": tenant,
        "target": target,
        "reason": reason,
        "labels": options.labels(label),
        "from_": options.maybe_instant(died_from, "from"),
        "to": options.maybe_instant(died_to, "to"),
    }
    return {key: value for key, value in which.items() if value is not None}


def _check_said(verb: str, ids: list[int] | None, everything: bool, which: dict[str, Any]) -> None:
    if bool(ids) + everything + bool(which) != 1:
        raise InvalidInput(f"expected ids, or {WHICH} to say what to {verb}")


def _rate_per_s(text: str | None) -> float | None:
    if text is None:
        return None
    match = _RATE.fullmatch(text)
    if not match or not float(match[1]):
        raise InvalidInput(f"rate: expected a rate such as 50/s, 100/m or 1000/h, got {text!r}", field="rate")
    return float(match[1]) / _SECONDS[match[2] or "s"]


def _total(client: Client, verb: str, which: dict[str, Any], yes: bool, rate_per_s: float | None = None) -> int:
    """How many there are, counted up to COUNTED; the user agreed, if there are any."""
    with working("counting"):
        total = client.dead.count(bound=COUNTED, **which)
    if total:
        many = f"{'at least ' if total == COUNTED else ''}{total:,}"
        pace = f" over {short(total / rate_per_s)}" if rate_per_s else ""
        options.confirmed(f"{verb.capitalize()} {many} dead letter{'s' if total > 1 else ''}{pace}?", yes)
    return total


@contextmanager
def _steps(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar; call what it yields with the letters that are done. Says how far it came if it is cut short."""
    so_far = 0
    with bar("letters") as report:

        def progress(done: int) -> None:
            nonlocal so_far
            so_far = done
            report(done, max(done, total))

        try:
            yield progress
        except (KeyboardInterrupt, StoreUnavailable):
            note(
                f"{verb} stopped behind {so_far:,} letters; those are done, and the same command goes on with the rest"
            )
            raise


def _account(found: Replayed, dry_run: bool, rate_per_s: float | None, as_json: bool) -> None:
    """What a replay did, or would do."""
    if as_json:
        values = {
            "replayed": found.replayed,
            "left": found.left,
            "in_the_way": found.in_the_way,
            "next_at": found.next_at,
        }
        emit({**values, "dry_run": True} if dry_run else values)
        return
    pace = (
        f"; the last starts about {iso(found.next_at.replace(microsecond=0))}"
        if rate_per_s and found.next_at and found.replayed
        else ""
    )
    say(f"{'would replay' if dry_run else 'replayed'}: {found.replayed:,}{pace}")
    if found.left:
        more = ", .." if found.left > len(found.in_the_way) else ""
        say(f"left as they were: {found.left:,}: {', '.join(found.in_the_way)}{more}")
