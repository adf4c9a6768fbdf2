"""`bucketd hold|release|holds`: keeps back everything that is due, and lets it go on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bucketd.cli import options
from bucketd.cli.output import emit, emit_lines, plain, say, table
from bucketd.cli.session import session
from bucketd.store.errors import InvalidInput

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
    as_json: options.Json = False,
) -> None:
    """Ends the hold of the same words; what it kept back runs as the misfire policies say."""
    what = _scope(everything, tenant, target)
    with session(context).client() as client:
        counts = plain(client.release(all=everything, tenant=tenant, target=target))
    assert isinstance(counts, dict)
    if as_json:
        emit({"scope": what, **counts})
    else:
        say(f"released: {what}; " + ", ".join(f"{name} {count}" for name, count in counts.items()))


def holds(context: typer.Context, as_json: options.Json = False) -> None:
    """Lists the holds that are on."""
    with session(context).client() as client:
        found = list(client.holds())
    if as_json:
        emit_lines(found)
    else:
        rows = ((h.scope, h.tenant or h.target or "", h.reason, h.created_at) for h in found)
        table(("scope", "of", "reason", "since"), rows, empty="nothing is held")


def _scope(everything: bool, tenant: str | None, target: str | None) -> str:
    given: dict[str, Any] = {"--all": everything or None, "--tenant": tenant, "--target": target}
    present = [name for name, value in given.items() if value is not None]
    if len(present) != 1:
        raise InvalidInput(
            f"expected exactly one of --all, --tenant and --target, got {' and '.join(present) or 'none'}"
        )
    return "all" if everything else f"{present[0].removeprefix('--')} {tenant or target}"
