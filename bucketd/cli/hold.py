"""`bucketd hold|release|holds`: keeps back everything that is due, and lets it go on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, note, say, table
from bucketd.cli.progress import bar
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

if TYPE_CHECKING:
    from bucketd.store.holds import Release

Everything = Annotated[bool, typer.Option("--all", help="Everything.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", "-t", help="This tenant.", show_default=False)]
OfTarget = Annotated[str | None, typer.Option("--target", help="This target.", show_default=False)]


def hold(
    context: typer.Context,
    everything: Everything = False,
    tenant: OfTenant = None,
    target: OfTarget = None,
    reason: Annotated[str, typer.Option(help="For whoever looks at `bucketd holds`.")] = "",
    as_json: options.Json = False,
) -> None:
    """Keeps back all that is due, of everything, a tenant or a target, until `release`; calls in flight end.

    Nothing is lost: what comes due meanwhile waits as held runs. Give exactly one of --all, --tenant and --target.
    """
    what = _scope(everything, tenant, target)
    with session(context).client() as client:
        held = client.hold(all=everything, tenant=tenant, target=target, reason=reason)
    if as_json:
        emit({"scope": what, "hold": held})
    else:
        say(f"held: {what}")


def release(
    context: typer.Context,
    everything: Everything = False,
    tenant: OfTenant = None,
    target: OfTarget = None,
    breaker: Annotated[
        bool, typer.Option("--breaker", help="Close the circuit breaker of --target, not a hold.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would become of the runs.")] = False,
    as_json: options.Json = False,
) -> None:
    """Ends the hold of the same words, or closes a breaker; what it kept back runs as the misfire policies say.

    Says first what becomes of how many runs. Ctrl-C ends the waiting, not the release: schedulers go on with it.
    """
    what = _scope(everything, tenant, target)
    chosen: dict[str, Any] = {"all": everything, "tenant": tenant, "target": target, "breaker": breaker}
    what = f"breaker of {what}" if breaker else what
    with session(context).client() as client:
        with bar("held runs counted") as report:
            counts = client.release(**chosen, dry_run=True, progress=lambda done: report(done, None))
        if not dry_run:
            total = counts.runs
            if total:
                note(f"releasing {total:,} held runs: {_counted(counts)}")
            with bar("held runs released") as report:
                counts = client.release(**chosen, progress=lambda done: report(done, total))
    if as_json:
        emit({"scope": what, **dataclasses.asdict(counts)})
    else:
        say(f"{'would release' if dry_run else 'released'}: {what}; {_counted(counts)}")


def _counted(counts: Release) -> str:
    return ", ".join(f"{name.replace('_', '-')} {count:,}" for name, count in dataclasses.asdict(counts).items())


def holds(context: typer.Context, as_json: options.Json = False) -> None:
    """Lists the holds that are on, and the circuit breakers that are open."""
    with session(context).client() as client:
        found = list(client.holds())
    if as_json:
        emit_lines(found)
    else:
        rows = (
            (
                "breaker" if h.kind == "breaker" else h.scope,
                h.tenant or h.target or "",
                h.reason,
                h.created_at,
                h.probe_at,
            )
            for h in found
        )
        table(("scope", "of", "reason", "since", "next probe"), rows, empty="nothing is held")


def _scope(everything: bool, tenant: str | None, target: str | None) -> str:
    given: dict[str, Any] = {"--all": everything or None, "--tenant": tenant, "--target": target}
    present = [name for name, value in given.items() if value is not None]
    if len(present) != 1:
        raise InvalidInput(
            f"expected exactly one of --all, --tenant and --target, got {' and '.join(present) or 'none'}"
        )
    return "all" if everything else f"{present[0].removeprefix('--')} {tenant or target}"
